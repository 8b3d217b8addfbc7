// `tessera checkpoint import|export` and the developers' `tessera checkpoint logits`.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

// Adds them below `checkpoint`. The command that runs sets exit_code.
void add_huggingface_commands(CLI::App& checkpoint, int& exit_code);

}  // namespace tessera
