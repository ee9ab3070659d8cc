// A server of kNet that takes everything: server PORT [tcp]
#include "kNet.h"

#include <cstdlib>
#include <unistd.h>

using namespace kNet;

struct Handler : IMessageHandler
{
    void HandleMessage(MessageConnection *, packet_id_t, message_id_t, const char *, size_t) {}
};

struct Listener : INetworkServerListener
{
    Handler handler;
    void NewConnectionEstablished(MessageConnection *connection)
    {
        connection->RegisterInboundMessageHandler(&handler);
    }
    void ClientDisconnected(MessageConnection *connection) { connection->Disconnect(0); }
};

int main(int count, char **words)
{
    SetLogChannels(LogUser | LogError);
    Network network;
    Listener listener;
    NetworkServer *server = network.StartServer((unsigned short)atoi(words[1]),
        count > 2 ? SocketOverTCP : SocketOverUDP, &listener, true);
    if (!server)
        return 2;
    for (;;)
    {
        server->Process();
        usleep(2000);
    }
}
