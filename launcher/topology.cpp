#include "launcher/topology.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include "launcher/cpuset.h"
#include "runtime/base/error.h"

namespace tessera {
namespace {

using Handle = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

Handle make_handle() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw DeviceError("topology: hwloc cannot start");
  return {raw, &hwloc_topology_destroy};
}

std::vector<int> members(hwloc_const_bitmap_t set) {
  std::vector<int> result;
  for (int index = hwloc_bitmap_first(set); index >= 0; index = hwloc_bitmap_next(set, index)) result.push_back(index);
  return result;
}

// The index of the first object of a type that contains the core; 0 where the machine describes none.
int index_of_parent(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t core) {
  const int count = hwloc_get_nbobjs_by_type(topology, type);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i));
    if (hwloc_bitmap_isincluded(core, object->cpuset) != 0) return i;
  }
  return 0;
}

Topology read(hwloc_topology_t handle, const std::string& source) {
  Topology topology;
  topology.source = source;
  topology.num_packages = std::max(1, hwloc_get_nbobjs_by_type(handle, HWLOC_OBJ_PACKAGE));
  topology.num_numa_nodes = std::max(1, hwloc_get_nbobjs_by_type(handle, HWLOC_OBJ_NUMANODE));
  // Some virtual machines describe PUs without cores; each PU is a core then.
  const hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(handle, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  const int count = hwloc_get_nbobjs_by_type(handle, type);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(handle, type, static_cast<unsigned>(i));
    Core core;
    core.package = index_of_parent(handle, HWLOC_OBJ_PACKAGE, object->cpuset);
    core.numa_node = index_of_parent(handle, HWLOC_OBJ_NUMANODE, object->cpuset);
    core.pus = members(object->cpuset);
    topology.cores.push_back(std::move(core));
  }
  return topology;
}

ConfigError bad_topology(const std::string& spec, const std::string& why) {
  return ConfigError(
      fmt::format("mesh.topology: '{}': {}", spec, why),
      "live, a file that lstopo wrote (machine.xml), or a synthetic description like \"pack:2 core:8 pu:1\"");
}

}  // namespace

std::vector<int> Topology::pus() const {
  std::vector<int> all;
  for (const Core& core : cores) all.insert(all.end(), core.pus.begin(), core.pus.end());
  std::sort(all.begin(), all.end());
  return all;
}

int Topology::num_cores_of(const std::vector<int>& wanted) const {
  return static_cast<int>(std::count_if(cores.begin(), cores.end(), [&](const Core& core) {
    return std::any_of(core.pus.begin(), core.pus.end(),
                       [&](int pu) { return std::find(wanted.begin(), wanted.end(), pu) != wanted.end(); });
  }));
}

std::string Topology::str() const {
  std::string text = fmt::format("{}: {} cores, {} PUs, packages {}, NUMA nodes {}", source, cores.size(), pus().size(),
                                 num_packages, num_numa_nodes);
  for (int node = 0; node < num_numa_nodes; ++node) {
    std::vector<int> indices, node_pus;
    int package = 0;
    for (std::size_t i = 0; i < cores.size(); ++i) {
      if (cores[i].numa_node != node) continue;
      indices.push_back(static_cast<int>(i));
      package = cores[i].package;
      node_pus.insert(node_pus.end(), cores[i].pus.begin(), cores[i].pus.end());
    }
    text += fmt::format("; package {}, numa {}: cores {} (PUs {})", package, node, cpuset_text(indices),
                        cpuset_text(node_pus));
  }
  return text;
}

Topology load_topology(const std::string& spec) {
  const Handle handle = make_handle();
  hwloc_topology_t topology = handle.get();
  if (spec == "live") {
    if (hwloc_topology_load(topology) != 0) throw DeviceError("topology: hwloc cannot read this machine");
    return read(topology, spec);
  }
  if (spec.ends_with(".xml")) {
    struct stat info {};
    if (::stat(spec.c_str(), &info) != 0) throw bad_topology(spec, "no such file");
    if (!S_ISREG(info.st_mode)) throw bad_topology(spec, "not a file");
    if (hwloc_topology_set_xml(topology, spec.c_str()) != 0 || hwloc_topology_load(topology) != 0) {
      throw bad_topology(spec, "hwloc cannot read this XML");
    }
    return read(topology, spec);
  }
  if (hwloc_topology_set_synthetic(topology, spec.c_str()) != 0 || hwloc_topology_load(topology) != 0) {
    throw bad_topology(spec, "neither live, nor a .xml file, nor a synthetic description that hwloc reads");
  }
  return read(topology, spec);
}

std::string hwloc_version() {
  return HWLOC_VERSION;
}

}  // namespace tessera
