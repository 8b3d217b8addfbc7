// `tessera config show|check|explain|schema`: what a job file means, what is wrong with it, what a key is.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

void add_config_commands(CLI::App& app, int& exit_code);

}  // namespace tessera
