// `tessera inspect RUN`: what went wrong in a run, from the collective logs of its ranks; also while it runs.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

// Exit code 0 where the verdict is ok, else 4.
void add_inspect_command(CLI::App& app, int& exit_code);

}  // namespace tessera
