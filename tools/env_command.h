// `tessera env`: what a bug report needs to say about a machine and its libraries.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

void add_env_command(CLI::App& app, int& exit_code);

}  // namespace tessera
