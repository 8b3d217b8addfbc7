// `tessera bench …`: figures with their own baseline measured in the same run.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

void add_bench_commands(CLI::App& app, int& exit_code);

}  // namespace tessera
