// `tessera plan CONFIG --ranks N`: what each rank will do, before anything runs.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

void add_plan_command(CLI::App& app, int& exit_code);

}  // namespace tessera
