#include "launcher/host_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <thread>

#include "launcher/local_processes.h"

namespace tessera {
namespace {

bool in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

std::string output_of(const char* command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command, "r"), &::pclose);
  std::string output;
  std::array<char, 256> part{};
  while (pipe && std::fgets(part.data(), part.size(), pipe.get()) != nullptr) output += part.data();
  return output;
}

// The setting, wherever it was made: environment, the user's file, the system's.
std::string agents() {
  for (const char* name : {"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"})
    if (const char* value = std::getenv(name)) return value;
  const std::string told = output_of("ompi_info --param plm rsh --level 9 --parsable 2>/dev/null");
  const std::string key = "plm_rsh_agent:value:";
  const auto at = told.find(key);
  if (at == std::string::npos) return "ssh : rsh";
  std::string value = told.substr(at + key.size(), told.find('\n', at) - at - key.size());
  std::erase(value, '"');
  return value;
}

// The kernel lets a socket have an address of this host only.
bool is_own_address(const addrinfo& found) {
  const int socket = ::socket(found.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool own = socket >= 0 && ::bind(socket, found.ai_addr, found.ai_addrlen) == 0;
  if (socket >= 0) ::close(socket);
  return own;
}

pid_t start_probe(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  ::execvp(arguments[0], arguments.data());
  ::_exit(kCommandNotRun);
}

}  // namespace

std::vector<std::string> choose_agent(const std::string& agents,
                                      const std::function<bool(const std::string&)>& is_there) {
  std::istringstream choices(agents);
  for (std::string choice; std::getline(choices, choice, ':');) {
    std::vector<std::string> words;
    std::istringstream text(choice);
    for (std::string word; text >> word;) words.push_back(word);
    if (!words.empty() && is_there(words.front())) return words;
  }
  return {};
}

std::optional<std::vector<std::string>> remote_agent() {
  const char* launcher = std::getenv("OMPI_MCA_plm");
  if (launcher != nullptr && std::strcmp(launcher, "rsh") != 0) return std::nullopt;
  // Inside an allocation mpirun starts its daemons by the batch system, and a shell may not even be allowed.
  if (launcher == nullptr) {
    for (const char* name : {"SLURM_JOBID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"})
      if (std::getenv(name) != nullptr) return std::nullopt;
  }
  std::vector<std::string> words = choose_agent(agents(), in_path);
  return words.empty() ? std::nullopt : std::optional(std::move(words));
}

bool is_this_host(const std::string& name) {
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  const std::string mine = own.data();
  if (name == "localhost" || name == mine || name == mine.substr(0, mine.find('.'))) return true;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return false;
  bool is_mine = false;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) is_mine = is_mine || is_own_address(*each);
  ::freeaddrinfo(found);
  return is_mine;
}

std::vector<bool> answering(const std::vector<Host>& hosts, const std::vector<std::string>& agent,
                            std::chrono::milliseconds limit, const std::function<bool()>& interrupted) {
  std::vector<bool> answers(hosts.size(), false);
  std::vector<pid_t> probes(hosts.size(), 0);
  // A name may take a resolver seconds: no host's own time goes by meanwhile.
  for (std::size_t i = 0; i < hosts.size() && !interrupted(); ++i) answers[i] = is_this_host(hosts[i].name);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (answers[i]) continue;
    std::vector<std::string> words = agent;
    if (!hosts[i].user.empty()) words.insert(words.end(), {"-l", hosts[i].user});
    words.insert(words.end(), {hosts[i].name, "true"});
    probes[i] = start_probe(std::move(words));
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const auto waiting = [&] { return std::ranges::any_of(probes, [](pid_t probe) { return probe > 0; }); };
  while (waiting() && std::chrono::steady_clock::now() < deadline && !interrupted()) {
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      int status = 0;
      if (probes[i] <= 0 || ::waitpid(probes[i], &status, WNOHANG) != probes[i]) continue;
      answers[i] = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      probes[i] = 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const pid_t probe : probes) {
    if (probe <= 0) continue;
    ::kill(-probe, SIGKILL);
    ::kill(probe, SIGKILL);  // before it has made its group
    ::waitpid(probe, nullptr, 0);
  }
  return answers;
}

}  // namespace tessera
