// `tessera completion bash`: the script that lets a shell complete commands, options and files.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

// Describes the commands of `app` at the time it runs: add it in any order.
void add_completion_command(CLI::App& app, int& exit_code);

}  // namespace tessera
