#include "launcher/mpi_session.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "runtime/base/log.h"
#include "runtime/train/trainer.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kAbortPatience{5};

std::vector<std::string> gather_text(const std::string& mine, MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm);
  std::vector<int> offsets(lengths.size());
  int total = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    offsets[i] = total;
    total += lengths[i];
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR, comm);
  std::vector<std::string> texts;
  texts.reserve(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(lengths[i])));
  }
  return texts;
}

// What `root` found, on every rank. Others pass anything.
ErrorInfo broadcast_error(ErrorInfo error, int root, MPI_Comm comm) {
  std::array<int, 2> code_and_length = {static_cast<int>(error.code), static_cast<int>(error.line.size())};
  MPI_Bcast(code_and_length.data(), 2, MPI_INT, root, comm);
  error.code = static_cast<ExitCode>(code_and_length[0]);
  error.line.resize(static_cast<std::size_t>(code_and_length[1]));
  MPI_Bcast(error.line.data(), code_and_length[1], MPI_CHAR, root, comm);
  return error;
}

// A process that no mpirun started need not start a daemon of Open MPI's own just to be alone: it costs a tenth of a
// second. Says nothing where the user has said something.
void be_alone_cheaply() {
  if (std::getenv("PMIX_RANK") == nullptr && std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) {
    ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  }
}

}  // namespace

struct MpiSession::State {
  MPI_Comm world = MPI_COMM_NULL;  // our own: nobody else's messages
  MPI_Comm local = MPI_COMM_NULL;
  std::atomic<bool> finished = false;
  std::uint64_t nonce = 0;  // of this job, equal on all ranks
  std::mutex mutex;
  std::string shared_file;  // under mutex
  // What MPI may still write to after agree_after_failure() gave up.
  std::array<int, 2> vote{}, lowest{};
};

MpiSession::MpiSession() : state_(std::make_unique<State>()), host_(host_name()) {
  be_alone_cheaply();
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  log::set_identity(rank_, size_, host_);
  log::set_terminal(rank_ == 0);
  if (provided < MPI_THREAD_MULTIPLE) {
    // Every rank runs the same library and comes here: all leave in order.
    if (rank_ != 0) log::set_terminal(false);
    MPI_Finalize();
    throw DeviceError(fmt::format("mpi: {} gives thread level {}, and MPI_THREAD_MULTIPLE ({}) is needed",
                                  mpi_library(), provided, int{MPI_THREAD_MULTIPLE}),
                      "an MPI library built with thread support");
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &state_->world);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &state_->local);
  MPI_Comm_rank(state_->local, &local_rank_);
  MPI_Comm_size(state_->local, &local_size_);
  if (rank_ == 0) {
    std::random_device random;
    state_->nonce = (std::uint64_t{random()} << 32U) | random();
  }
  MPI_Bcast(&state_->nonce, 1, MPI_UINT64_T, 0, state_->world);
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() == 0) finish();
}

void MpiSession::barrier() {
  MPI_Barrier(state_->world);
}

std::vector<std::string> MpiSession::all_gather(const std::string& mine) {
  return gather_text(mine, state_->world);
}

std::vector<std::string> MpiSession::all_gather_local(const std::string& mine) {
  return gather_text(mine, state_->local);
}

void MpiSession::agree(const std::function<void()>& step) {
  ErrorInfo mine;
  bool failed = false;
  try {
    step();
  } catch (const AgreedError&) {
    throw;  // everybody knows already
  } catch (...) {
    mine = describe(std::current_exception());
    failed = true;
  }
  const int vote = failed ? rank_ : size_;
  int lowest = size_;
  MPI_Allreduce(&vote, &lowest, 1, MPI_INT, MPI_MIN, state_->world);
  if (lowest == size_) return;
  const ErrorInfo found = broadcast_error(mine, lowest, state_->world);
  throw AgreedError(found.code, lowest, found.line);
}

std::optional<MpiSession::FoundError> MpiSession::agree_after_failure(const ErrorInfo& mine,
                                                                      std::chrono::milliseconds grace) {
  // An error of a call is often the shadow of another rank's own: that one goes first.
  const bool of_a_call = mine.code == ExitCode::kCollective;
  state_->vote = {of_a_call ? rank_ + size_ : rank_, of_a_call ? 0 : 1};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(state_->vote.data(), state_->lowest.data(), 2, MPI_INT, MPI_MIN, state_->world, &request);
  const auto deadline = std::chrono::steady_clock::now() + grace;
  for (int complete = 0;;) {
    MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
    if (complete != 0) break;
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const int found = state_->lowest[0] % size_;
  return FoundError{found, broadcast_error(mine, found, state_->world), state_->lowest[1] == 1};
}

bool MpiSession::claim_last_word() {
  // A socket's name in the abstract namespace: one process of the host can hold it, no file appears, and the kernel drops it with the
  // process. Never closed: the claim is for good.
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("tessera-last-word-{:016x}", state_->nonce);
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // after the zero that makes it abstract
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (socket < 0 || ::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0) return false;
  std::string path;
  {
    const std::lock_guard lock(state_->mutex);
    path = state_->shared_file;
  }
  if (path.empty()) return true;
  // Never closed either. A file that is gone or cannot be locked leaves one speaker per host.
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  return file < 0 || ::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void MpiSession::share_last_word(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  state_->shared_file = path;
}

void MpiSession::finish() {
  if (state_->finished.exchange(true)) return;
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized == 0 || finalized != 0) return;
  MPI_Comm_free(&state_->local);
  MPI_Comm_free(&state_->world);
  MPI_Finalize();
}

void MpiSession::abort(ExitCode code) {
  log::flush();
  // MPI cannot abort once it finalises; a rank that ends with a code of its own ends the job as well.
  if (!state_->finished.load()) {
    // Nor is it certain to get that far: whatever it waits for, this process ends.
    std::thread([code] {
      std::this_thread::sleep_for(kAbortPatience);
      std::_Exit(static_cast<int>(code));
    }).detach();
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  }
  std::_Exit(static_cast<int>(code));
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string name(text.data(), static_cast<std::size_t>(length));
  // "Open MPI v4.1.4, package: …": the first clause, its v dropped.
  name = name.substr(0, name.find_first_of(",\n"));
  if (const auto at = name.find(" v"); at != std::string::npos) name.erase(at + 1, 1);
  return name;
}

std::string mpi_standard() {
  int major = 0, minor = 0;
  MPI_Get_version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

std::string pmix_library() {
  for (const char* name : {"libpmix.so.2", "libpmix.so"}) {
    void* library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) continue;
    using VersionFunction = const char* (*)();
    const auto get_version = reinterpret_cast<VersionFunction>(::dlsym(library, "PMIx_Get_version"));
    const std::string text = get_version == nullptr ? "" : get_version();
    if (!text.empty()) return text.substr(0, text.find(','));
  }
  return "not found";
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace tessera
