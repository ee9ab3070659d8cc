// A server of Riptide that takes everything: server.exe PORT [tcp]
using System;
using System.Net;
using System.Threading;
using Riptide;
using Riptide.Transports.Tcp;
using Riptide.Transports.Udp;
using Riptide.Utils;

class Program
{
    static void Main(string[] words)
    {
        RiptideLogger.Initialize(line => Console.Error.WriteLine(line), false);
        bool tcp = words.Length > 1 && words[1] == "tcp";
        Server server = tcp
            ? new Server(new TcpServer(IPAddress.Loopback))
            : new Server(new UdpServer(IPAddress.Loopback));
        server.Start(ushort.Parse(words[0]), 64, 0, false);
        for (;;)
        {
            server.Update();
            Thread.Sleep(5);
        }
    }
}
