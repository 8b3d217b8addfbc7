// `tessera data prepare | show`: text to token files, and a look inside one.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

void add_data_commands(CLI::App& app, int& exit_code);

}  // namespace tessera
