// `tessera checkpoint list|show|verify|diff|import|export`: what checkpoints a run has, what is in one, whether it is whole, how two differ.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

// Exit code 5 where verify finds damage or diff finds a difference, else 0.
void add_checkpoint_commands(CLI::App& app, int& exit_code);

}  // namespace tessera
