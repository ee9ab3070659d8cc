// A server of Netplay's binary revisions that sends back what it understood: Main PORT
package handlers;

import com.netplay.example.shared.messages.*;
import com.netplay.server.*;
import com.netplay.shared.NetworkSerializable;
import com.netplay.shared.events.NetworkEventHandler;
import com.netplay.shared.messages.NetworkMessage;

public class Main extends Server {
  static Main server;

  public void onUserConnected(NetworkConnection connection) {}

  public void onUserDisconnected(NetworkConnection connection) {}

  public static void main(String[] words) throws Exception {
    server = new Main();
    server.setMaxConnections(64);
    server.registerHandlerPackages("handlers");
    server.start("127.0.0.1", Integer.parseInt(words[0]));
    Thread.currentThread().join();
  }

  public static class Handlers {
    static void back(NetworkMessage message, NetworkSerializable body) throws Exception {
      server.sendMessageUnicast(
          message.getSenderConnectionId(),
          new NetworkMessage(message.getType(), message.getOptions(), body));
    }

    @NetworkEventHandler(0)
    public void login(NetworkMessage message) throws Exception {
      back(message, message.deserialize(NetworkMessageLogin.class));
    }

    @NetworkEventHandler(1)
    public void notification(NetworkMessage message) throws Exception {
      back(message, message.deserialize(NetworkMessageNotification.class));
    }

    @NetworkEventHandler(2)
    public void chat(NetworkMessage message) throws Exception {
      back(message, message.deserialize(NetworkMessageChat.class));
    }
  }
}
