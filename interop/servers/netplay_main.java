// A server of Netplay's main branch that sends back what it understood: Main PORT
import com.netplay.example.shared.messages.*;
import com.netplay.server.*;
import com.netplay.shared.*;

public class Main extends Server {
  public void onUserConnected(NetworkConnection connection) {}

  public void onUserDisconnected(NetworkConnection connection) {}

  public static void main(String[] words) throws Exception {
    Network.setSerializer(new JsonSerializer());
    Network.on(NetworkMessageLogin.class, (message, id) -> Network.send(id, message));
    Network.on(NetworkMessageNotification.class, (message, id) -> Network.send(id, message));
    Network.on(NetworkMessageChat.class, (message, id) -> Network.send(id, message));
    Main server = new Main();
    server.setMaxConnections(64);
    server.start("127.0.0.1", Integer.parseInt(words[0]));
    Thread.currentThread().join();
  }
}
