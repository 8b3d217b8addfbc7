// Which hosts a remote shell reaches: asked the way mpirun would start its daemon there.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/hostfile.h"

namespace tessera {

// The first agent of "ssh -x : rsh" (mpirun's plm_rsh_agent) whose program is there, as words; empty: none.
std::vector<std::string> choose_agent(const std::string& agents,
                                      const std::function<bool(const std::string&)>& is_there);
// What mpirun would start remote daemons with here, by its own settings. Nothing where it would not use a remote shell but ask a batch system,
// and where no agent is there.
std::optional<std::vector<std::string>> remote_agent();

// Whether the name is one of this host, to which no shell is needed.
bool is_this_host(const std::string& name);

// Runs `AGENT HOST true` for all hosts but this one at once. True where it ended with 0 within the limit. interrupted: asked some times a second;
// where it says so, the rest counts as not answering.
std::vector<bool> answering(const std::vector<Host>& hosts, const std::vector<std::string>& agent,
                            std::chrono::milliseconds limit, const std::function<bool()>& interrupted);

}  // namespace tessera
