// Sets of kernel CPU numbers, and the threads that are bound to them.
#pragma once

#include <string>
#include <vector>

namespace tessera {

// "0-2,5"; "none" for the empty set.
std::string cpuset_text(std::vector<int> pus);
// The inverse; InternalError for other text.
std::vector<int> parse_cpuset(const std::string& text);

// What the calling thread may run on.
std::vector<int> current_cpuset();
// Binds the calling thread; threads it starts later inherit it. DeviceError where the kernel refuses.
void bind_this_thread(const std::vector<int>& pus);

}  // namespace tessera
