// Stands for the engine's project, which belongs to its editor: there is one, and it knows no component.
#include <functional>
#include <memory>
#include <string>

namespace Exodia
{
struct Project
{
    static std::shared_ptr<Project> GetActive();
    std::function<void *(int)> GetComponentFactory(std::string);
    // The real one is larger than this; nothing of it is used.
    char space[4096];
};

std::shared_ptr<Project> Project::GetActive()
{
    static auto project = std::make_shared<Project>();
    return project;
}

std::function<void *(int)> Project::GetComponentFactory(std::string) { return {}; }
} // namespace Exodia
