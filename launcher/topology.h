// The processors of a machine as plain data: packages, NUMA nodes, cores, processing units (PU: what the kernel calls a
// CPU).
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct Core {
  int package = 0;       // index among packages, from 0
  int numa_node = 0;     // index among NUMA nodes, from 0
  std::vector<int> pus;  // kernel CPU numbers, ascending; two or more where the core runs several threads
  friend bool operator==(const Core&, const Core&) = default;
};

struct Topology {
  std::string source;  // "live", the XML file, or the synthetic description
  int num_packages = 0;
  int num_numa_nodes = 0;
  std::vector<Core> cores;  // in the machine's own order: neighbours share caches

  // All PUs, ascending.
  std::vector<int> pus() const;
  // The cores with a PU among these.
  int num_cores_of(const std::vector<int>& pus) const;
  // One line: counts, then each NUMA node: "package 0, numa 0: cores 0-1 (PUs 0-1)".
  std::string str() const;
  friend bool operator==(const Topology&, const Topology&) = default;
};

// mesh.topology: "live" is this machine as far as its administrator lets this process use it (control groups; not the
// binding that mpirun chose); a name that ends in .xml is a file that lstopo wrote; anything else is hwloc's synthetic
// form, "pack:2 numa:1 core:8 pu:2". ConfigError naming the text where it is none of these.
Topology load_topology(const std::string& spec);

// "2.9.0".
std::string hwloc_version();

}  // namespace tessera
