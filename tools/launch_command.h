// `tessera launch`: mpirun with the options a job wants, and signals that ask instead of kill.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

void add_launch_command(CLI::App& app, int& exit_code);

}  // namespace tessera
