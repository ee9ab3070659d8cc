// The engine's own server, with a world that has nothing in it: server PORT
// Its sources are included where the engine has no library of them without its windows and sounds.
#include "Exodia/Core/ID/UUID.cpp"
#include "Exodia/Debug/Logger/Log.cpp"
#include "Exodia/ECS/Entity/Entity.cpp"
#include "Exodia/ECS/Entity/EntityIterator.cpp"
#include "Exodia/ECS/Entity/EntityView.cpp"
#include "Exodia/ECS/World/World.cpp"
#include "Network.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

int main(int, char **words)
{
    Exodia::Log::Init();
    Exodia::World *world = Exodia::World::CreateWorld();
    Exodia::Network::IOContextManager context;
    Exodia::Network::Network network(world, context, (short)std::atoi(words[1]));
    network.SetNetworkType(Exodia::Network::NetworkType::SERVER);
    for (;;)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
}
