// `tessera generate`.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

void add_generate_command(CLI::App& app, int& exit_code);

}  // namespace tessera
