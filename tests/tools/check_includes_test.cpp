// tools/check_includes over small trees made here: each rule of the folder table is broken once and must be caught.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Outcome {
  int exit_code = -1;
  std::string output;
};

class CheckIncludes : public testing::Test {
 protected:
  CheckIncludes() : root_(fs::temp_directory_path() / ("tessera_includes_" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    for (const char* header : {"runtime/base/hash.h", "runtime/device/stream.h", "runtime/device/cpu/cpu_device.h",
                               "runtime/train/trainer.h", "models/gpt.h", "tools/plan.h"}) {
      write(header, "#pragma once\n");
    }
  }
  ~CheckIncludes() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  Outcome check(const std::string& root) const {
    const std::string command = std::string(TESSERA_SOURCE_DIR) + "/tools/check_includes '" + root + "' 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    Outcome outcome;
    if (pipe == nullptr) return outcome;
    char buffer[512];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) outcome.output += buffer;
    outcome.exit_code = WEXITSTATUS(::pclose(pipe));
    return outcome;
  }

  // The tree with one more file is refused, with exactly this line.
  void expect_refused(const std::string& path, const std::string& text, const std::string& line) {
    write(path, text);
    const Outcome outcome = check(root_.string());
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_NE(outcome.output.find(line + "\n"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("check_includes: 1 violations"), std::string::npos) << outcome.output;
  }

  fs::path root_;
};

TEST_F(CheckIncludes, AcceptsATreeThatKeepsToTheTable) {
  write("fsdp/unit.cpp", "#include <vector>\n#include <fmt/format.h>\n#include \"runtime/base/hash.h\"\n");
  write("runtime/base/hash.cpp", "#include <xxhash.h>\n#include \"runtime/base/hash.h\"\n");
  write("launcher/main.cpp", "#include \"tools/plan.h\"\n");
  write("tests/train/trainer_test.cpp", "#include <gtest/gtest.h>\n#include \"runtime/train/trainer.h\"\n");
  const Outcome outcome = check(root_.string());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "check_includes: 4 files in order\n");
}

TEST_F(CheckIncludes, RefusesAnUpwardInclude) {
  expect_refused("runtime/base/error.cpp", "#include \"runtime/device/stream.h\"\n",
                 "runtime/base/error.cpp:1: runtime/base may not include runtime/device (\"runtime/device/stream.h\")");
}

TEST_F(CheckIncludes, RefusesShardingThatKnowsTheModel) {
  expect_refused("fsdp/layout.h", "#pragma once\n\n#include \"models/gpt.h\"\n",
                 "fsdp/layout.h:3: fsdp may not include models (\"models/gpt.h\")");
}

TEST_F(CheckIncludes, RefusesToolsAnywhereInTheLauncherButMain) {
  expect_refused("launcher/supervisor.cpp", "#include \"tools/plan.h\"\n",
                 "launcher/supervisor.cpp:1: launcher may not include tools (\"tools/plan.h\")");
}

TEST_F(CheckIncludes, RefusesAThirdPartyOutsideItsRoom) {
  expect_refused("runtime/train/metrics.cpp", "#include <spdlog/spdlog.h>\n",
                 "runtime/train/metrics.cpp:1: spdlog (<spdlog/spdlog.h>) belongs in runtime/base/log.cpp");
}

TEST_F(CheckIncludes, RefusesAThirdPartyInAnInterfaceHeader) {
  expect_refused("runtime/config/load.h", "#include <yaml-cpp/yaml.h>\n",
                 "runtime/config/load.h:1: yaml-cpp (<yaml-cpp/yaml.h>) belongs in runtime/config/*.cpp");
}

TEST_F(CheckIncludes, RefusesAHeaderThatCarriesAThirdPartyOutOfItsRoom) {
  write("parallel/mpi/handles.h", "#include <mpi.h>\n");
  expect_refused(
      "fsdp/unit.cpp", "#include \"parallel/mpi/handles.h\"\n",
      "fsdp/unit.cpp:1: \"parallel/mpi/handles.h\" brings MPI along, which belongs in launcher/mpi_session*.cpp "
      "parallel/mpi/* parallel/shm/* tools/*bench*.cpp");
}

TEST_F(CheckIncludes, RefusesALibraryThatTheTableDoesNotKnow) {
  expect_refused("runtime/base/json.cpp", "#include <rapidjson/document.h>\n",
                 "runtime/base/json.cpp:1: <rapidjson/document.h> is of no library in the table (tools/check_includes, "
                 "docs/dependencies.md)");
}

TEST_F(CheckIncludes, RefusesABackendInAnInterfaceHeaderBesideIt) {
  expect_refused("runtime/device/device.h", "#include \"runtime/device/cpu/cpu_device.h\"\n",
                 "runtime/device/device.h:1: the backend folder runtime/device/cpu is closed to this file "
                 "(\"runtime/device/cpu/cpu_device.h\")");
}

TEST_F(CheckIncludes, RefusesAFolderWithoutARow) {
  expect_refused("helpers/misc.cpp", "#include <vector>\n", "helpers/misc.cpp:1: this folder has no row in the table");
}

TEST_F(CheckIncludes, RefusesAPathThatIsRelativeToTheFile) {
  expect_refused("runtime/base/hash.cpp", "#include \"hash.h\"\n",
                 "runtime/base/hash.cpp:1: \"hash.h\" is no file; include project headers by their path from the root");
}

TEST_F(CheckIncludes, RefusesATypeThatTwoHeadersDefine) {
  write("fsdp/host.h",
        "#pragma once\nnamespace tessera::inner {\nstruct Host {\n};\nenum class Mark { kA };\n}\n"
        "namespace tessera {\nclass Other;\n}\n");
  write("models/host.h", "#pragma once\nnamespace tessera {\nstruct Host;\nclass Host {\n};\nclass Mark {};\n}\n");
  const Outcome outcome = check(root_.string());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  expect_refused("tools/host.h", "#pragma once\nnamespace tessera {\nstruct Host final : Other {\n};\n}\n",
                 "tools/host.h:3: tessera::Host is a type of models/host.h as well");
}

TEST_F(CheckIncludes, ExplainsItselfForAWrongArgument) {
  const Outcome outcome = check((root_ / "absent").string());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.output, "usage: tools/check_includes [ROOT]\n");
}

}  // namespace
