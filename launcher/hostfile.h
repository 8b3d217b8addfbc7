// Hosts as users name them to mpirun: a file with one a line, or a list.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct Host {
  std::string name;
  std::optional<int> slots;  // ranks that it takes; none: not told
  std::string user;          // of the remote shell; "": this one
  friend bool operator==(const Host&, const Host&) = default;
};

// "name slots=8 max_slots=16" a line, # begins a comment; lines of one host without slots add one each. In the file's order, each host once.
// ConfigError naming file and line for what mpirun refuses, or takes and then cannot use (an IPv6 address).
std::vector<Host> read_hostfile(const std::string& path);

// Of --host: "a:2,b". A host that is named twice has the sum. ConfigError for slots that are no number.
std::vector<Host> parse_host_list(const std::string& list);

// Slots of all; nullopt where one does not tell, or there is no host.
std::optional<int> count_slots(const std::vector<Host>& hosts);

// "a:2,b:2", as --host takes it.
std::string host_list(const std::vector<Host>& hosts);
// "a, b", for people.
std::string host_names(const std::vector<Host>& hosts);

}  // namespace tessera
