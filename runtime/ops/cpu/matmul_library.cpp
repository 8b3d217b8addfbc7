#include "runtime/ops/cpu/matmul_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "runtime/base/error.h"
#include "runtime/ops/matmul_bench.h"

namespace tessera::ops {
namespace cpu {
namespace {

// oneDNN's own threads are those of OpenMP, and their number belongs to the calling thread. The function is looked up
// in whichever OpenMP runtime oneDNN itself was linked to; linking one here could bring in a second.
using SetNumThreads = void (*)(int);

SetNumThreads find_set_num_threads() {
  const unsigned runtime = dnnl_version()->cpu_runtime;
  if (runtime == DNNL_RUNTIME_SEQ) return nullptr;
  void* function = runtime == DNNL_RUNTIME_OMP ? dlsym(RTLD_DEFAULT, "omp_set_num_threads") : nullptr;
  if (function == nullptr) {
    throw DeviceError(fmt::format("device: oneDNN runs its threads by runtime {}, expected OpenMP or none", runtime),
                      "install a oneDNN built for OpenMP (Debian and Ubuntu: libdnnl-dev)");
  }
  return reinterpret_cast<SetNumThreads>(function);
}

void set_library_threads(int threads) {
  static const SetNumThreads kSetNumThreads = find_set_num_threads();
  if (kSetNumThreads != nullptr) kSetNumThreads(threads);
}

// Once per thread, whoever started it: pool workers, the caller of an inline stream, a test's threads.
void run_sequentially() {
  thread_local bool done = false;
  if (done) return;
  set_library_threads(1);
  done = true;
}

void check(dnnl_status_t status, const char* call) {
  if (status != dnnl_success) throw InternalError(fmt::format("oneDNN: {} returned status {}", call, int{status}));
}

}  // namespace

std::string_view matmul_library_name() {
  static const std::string kName = [] {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }();
  return kName;
}

bool cap_matmul_library(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41) == dnnl_success;
    case Isa::kAvx2: return dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2) == dnnl_success;
    case Isa::kAvx512: break;
  }
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_set_max_cpu_isa(dnnl_cpu_isa_default) == dnnl_success;
#else
  return dnnl_set_max_cpu_isa(dnnl_cpu_isa_all) == dnnl_success;
#endif
}

void gemm(const Gemm& args) {
  run_sequentially();
  check(dnnl_sgemm(args.transpose_a ? 'T' : 'N', 'N', args.m, args.n, args.k, 1.0F, args.a, args.lda, args.b, args.ldb,
                   args.accumulate ? 1.0F : 0.0F, args.c, args.ldc),
        "dnnl_sgemm");
}

}  // namespace cpu

void library_matmul(int threads, bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                    const float* a, const float* b, float* c) {
  using dnnl::memory;
  using Tag = memory::format_tag;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const memory::desc a_desc({m, k}, memory::data_type::f32, transpose_a ? Tag::ba : Tag::ab);
  const memory::desc b_desc({k, n}, memory::data_type::f32, transpose_b ? Tag::ba : Tag::ab);
  const memory::desc c_desc({m, n}, memory::data_type::f32, Tag::ab);
  // A primitive is made for a number of threads; the library caches it between calls.
  cpu::set_library_threads(threads);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine, a_desc, b_desc, c_desc);
#else
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a_desc, b_desc, c_desc), engine);
#endif
  const dnnl::matmul product(description);
  dnnl::stream stream(engine);
  // The library reads a and b only.
  product.execute(stream, {{DNNL_ARG_SRC, memory(a_desc, engine, const_cast<float*>(a))},
                           {DNNL_ARG_WEIGHTS, memory(b_desc, engine, const_cast<float*>(b))},
                           {DNNL_ARG_DST, memory(c_desc, engine, c)}});
  stream.wait();
  cpu::set_library_threads(1);
}

}  // namespace tessera::ops
