// SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask a rank to stop. The handler only notes it; ranks agree on it once per step.
#pragma once

namespace tessera {

// From now on these signals set a flag. A second SIGINT or SIGTERM ends the process at once with 130: whoever insists
// does not want to wait.
void install_stop_signals();
// Whether one of them came.
bool stop_requested();
// The first that came; 0: none.
int stop_signal();
// "SIGINT", …
const char* signal_name(int signal);

}  // namespace tessera
