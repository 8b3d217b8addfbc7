// SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask a rank to stop. The handler only notes it; ranks agree on it once per step and evaluation batch.
#pragma once

namespace tessera {

class CollectiveLog;

// From now on these signals set a flag; SIGHUP only where it was not ignored before: whoever started the program with
// nohup wants it to outlive the terminal. A second SIGINT or SIGTERM ends the process at once with 130: whoever insists
// does not want to wait.
void install_stop_signals();
// Whether this process ignores the signal.
bool is_ignored(int signal);
// Whether one of them came.
bool stop_requested();
// The first that came; 0: none.
int stop_signal();
// "SIGINT", …
const char* signal_name(int signal);

// A SIGTERM may also be what a launcher sends the survivors of a dead rank. While somebody watches, it is counted,
// written to the descriptor (an eventfd), and is no request to stop, not even an insistent one, until stop_on_sigterm().
// -1: nobody watches any longer.
void watch_sigterm(int descriptor);
int num_sigterms();
void stop_on_sigterm();

// The log that says so where this process ends unsaved, or is about to be ended after a request; nullptr before it goes.
void mark_on_unsaved_end(CollectiveLog* log);
// Ends the process with 130, at once. Safe in a signal handler.
[[noreturn]] void end_unsaved();

}  // namespace tessera
