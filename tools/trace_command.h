// `tessera trace RUN`: where the time of the traced steps went, from the files of every rank.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

// Exit code 3 where a file is missing or damaged: what the others tell is printed all the same.
void add_trace_command(CLI::App& app, int& exit_code);

}  // namespace tessera
