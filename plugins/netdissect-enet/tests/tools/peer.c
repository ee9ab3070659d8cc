/* A client or a server on ENet that follows a short script, for captures whose truth is known.
 *
 *   peer server PORT SECONDS [crc] [compress]
 *   peer client PORT SCRIPT SECONDS [crc] [compress]
 *
 * The script is a list of words "MS:WHAT:COUNT:SIZE:CHANNEL", one after the other: at MS send COUNT packets
 * of SIZE octets on CHANNEL, WHAT being r (reliable), u (unreliable), f (unreliable, in fragments), q (unsequenced);
 * d (disconnect), l (disconnect_later), n (disconnect_now), x (reset, and connect again at once), k (reset).
 * Prints one line of JSON with the library's own counters at the end.
 */
#include <enet/enet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PEERS 512

static unsigned long received, received_octets, connects, disconnects, resent;
static enet_uint32 round_trip, variance, throttle;

/* The library forgets a peer's counters when it is gone: add up what they grow by. */
static void watch(const ENetHost *host)
{
    static enet_uint32 last[MAX_PEERS];
    for (size_t i = 0; i < host->peerCount; i++) {
        const ENetPeer *peer = &host->peers[i];
        if (peer->packetsLost > last[i])
            resent += peer->packetsLost - last[i];
        last[i] = peer->packetsLost;
        if (peer->state == ENET_PEER_STATE_CONNECTED) {
            round_trip = peer->roundTripTime;
            variance = peer->roundTripTimeVariance;
            throttle = peer->packetThrottle;
        }
    }
}

static ENetHost *make(const ENetAddress *address, int argc, char **argv, int first)
{
    ENetHost *host = enet_host_create(address, MAX_PEERS, 4, 0, 0);
    for (int i = first; i < argc; i++) {
        if (!strcmp(argv[i], "crc"))
            host->checksum = enet_crc32;
        if (!strcmp(argv[i], "compress"))
            enet_host_compress_with_range_coder(host);
    }
    return host;
}

static void serve(ENetHost *host, int wait, int answer)
{
    ENetEvent event;
    int result = enet_host_service(host, &event, wait);
    while (result > 0) {
        if (event.type == ENET_EVENT_TYPE_RECEIVE) {
            received++;
            received_octets += event.packet->dataLength;
            if (answer && received % 4 == 0) {
                ENetPacket *packet = enet_packet_create("answer", 6, ENET_PACKET_FLAG_RELIABLE);
                enet_peer_send(event.peer, event.channelID, packet);
            }
            enet_packet_destroy(event.packet);
        } else if (event.type == ENET_EVENT_TYPE_CONNECT) {
            connects++;
        } else if (event.type == ENET_EVENT_TYPE_DISCONNECT) {
            disconnects++;
        }
        result = enet_host_check_events(host, &event);
    }
    watch(host);
}

static void report(const ENetHost *host)
{
    printf("{\"received\": %lu, \"received_octets\": %lu, \"connects\": %lu, \"disconnects\": %lu, \"resent\": %lu, "
           "\"datagrams_sent\": %u, \"datagrams_received\": %u, \"octets_sent\": %u, "
           "\"round_trip_ms\": %u, \"variance_ms\": %u, \"throttle\": %u}\n",
           received, received_octets, connects, disconnects, resent,
           host->totalSentPackets, host->totalReceivedPackets, host->totalSentData,
           round_trip, variance, throttle);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    ENetAddress address;
    if (argc < 4 || enet_initialize())
        return 2;
    enet_address_set_host(&address, "127.0.0.1");
    address.port = (enet_uint16)atoi(argv[2]);
    if (!strcmp(argv[1], "server")) {
        ENetHost *host = make(&address, argc, argv, 4);
        if (!host)
            return 3;
        enet_uint32 end = enet_time_get() + (enet_uint32)(atof(argv[3]) * 1000);
        printf("ready\n");
        fflush(stdout);
        while (enet_time_get() < end)
            serve(host, 5, 1);
        report(host);
        return 0;
    }
    ENetHost *host = make(NULL, argc, argv, 5);
    ENetPeer *peer = enet_host_connect(host, &address, 4, 7);
    enet_uint32 start = enet_time_get(), end = start + (enet_uint32)(atof(argv[4]) * 1000);
    char *next = strtok(argv[3], " ");
    while (enet_time_get() < end) {
        int at, count, size, channel;
        char what;
        while (next && sscanf(next, "%d:%c:%d:%d:%d", &at, &what, &count, &size, &channel) == 5
               && enet_time_get() - start >= (enet_uint32)at) {
            if (what == 'd') enet_peer_disconnect(peer, 3);
            else if (what == 'l') enet_peer_disconnect_later(peer, 4);
            else if (what == 'n') enet_peer_disconnect_now(peer, 5);
            else if (what == 'k' || what == 'x') {
                enet_peer_reset(peer);
                if (what == 'x')
                    peer = enet_host_connect(host, &address, 4, 8);
            } else for (int i = 0; i < count; i++) {
                enet_uint32 flags = what == 'r' ? ENET_PACKET_FLAG_RELIABLE
                    : what == 'q' ? ENET_PACKET_FLAG_UNSEQUENCED
                    : what == 'f' ? ENET_PACKET_FLAG_UNRELIABLE_FRAGMENT : 0;
                ENetPacket *packet = enet_packet_create(NULL, (size_t)size, flags);
                for (int k = 0; k < size; k++)
                    packet->data[k] = (enet_uint8)(k % 61 + i);
                if (enet_peer_send(peer, (enet_uint8)channel, packet) < 0)
                    enet_packet_destroy(packet);
            }
            next = strtok(NULL, " ");
        }
        serve(host, 2, 0);
    }
    report(host);
    return 0;
}
