#include "checkpoint/file_system.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <string>

#include "runtime/base/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

class FileSystemTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_ / name; }
  // The message of the CheckpointError that `body` ends with.
  template <typename Body>
  static std::string error_of(Body body) {
    try {
      body();
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  }
  static std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

  test::TemporaryDirectory directory_;
  std::unique_ptr<FileSystem> files_ = make_posix_file_system();
};

TEST_F(FileSystemTest, ReadsBackWhatWasWritten) {
  const std::string head = "head", tail = "tail";
  const auto file = files_->create(path("a"), 8);
  file->write_at(4, bytes_of(tail));
  file->write_at(0, bytes_of(head));
  file->sync();
  file->close();
  files_->sync_directory(path(""));
  EXPECT_EQ(read_small_file(*files_, path("a"), 8), "headtail");
}

TEST_F(FileSystemTest, RefusesToReadMoreThanIsThere) {
  write_small_file(*files_, path("a"), "12345");
  const auto file = files_->open(path("a"));
  EXPECT_EQ(file->size(), 5U);
  std::string text(4, ' ');
  EXPECT_EQ(error_of([&] { file->read_at(3, std::as_writable_bytes(std::span(text))); }),
            path("a") + ": ends at byte 5, 2 more expected");
  EXPECT_EQ(error_of([&] { read_small_file(*files_, path("a"), 4); }), path("a") + ": 5 bytes, expected at most 4");
}

TEST_F(FileSystemTest, NeverReplacesAFileOrAFolder) {
  write_small_file(*files_, path("a"), "old");
  files_->make_directory(path("full"));
  files_->make_directory(path("empty"));
  EXPECT_EQ(error_of([&] { files_->create(path("a"), 1); }), path("a") + ": cannot create: File exists");
  EXPECT_NE(error_of([&] { files_->make_directory(path("empty")); }), "");
  // rename(2) alone would replace an empty folder.
  EXPECT_EQ(error_of([&] { files_->rename(path("full"), path("empty")); }),
            fmt::format("{}: cannot rename {} to it: File exists", path("empty"), path("full")));
  EXPECT_EQ(read_small_file(*files_, path("a"), 8), "old");
}

TEST_F(FileSystemTest, ListsByNameAndRemovesWholeFolders) {
  files_->make_directory(path("folder"));
  write_small_file(*files_, path("folder/b"), "");
  write_small_file(*files_, path("folder/a"), "1");
  files_->make_directory(path("folder/c"));
  EXPECT_EQ(files_->list(path("folder")), (std::vector<DirectoryEntry>{{"a", false}, {"b", false}, {"c", true}}));
  files_->remove(path("folder"));
  EXPECT_FALSE(files_->exists(path("folder")));
  files_->remove(path("folder"));  // nothing to do
}

TEST_F(FileSystemTest, NamesThePathOfWhatIsMissing) {
  const std::string missing = path("none/a");
  EXPECT_EQ(error_of([&] { files_->open(missing); }), missing + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of([&] { files_->create(missing, 1); }), missing + ": cannot create: No such file or directory");
  EXPECT_EQ(error_of([&] { files_->list(missing); }), missing + ": cannot list: No such file or directory");
  EXPECT_FALSE(files_->exists(missing));
  EXPECT_NE(error_of([&] { files_->open(path("")); }), "");  // a folder
}

// Opening a pipe waits for who writes to it: for ever.
TEST_F(FileSystemTest, WhatIsNoRegularFileIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& name : {path("pipe"), directory_.path().string()}) {
    EXPECT_EQ(error_of([&] { files_->open(name); }), name + ": is no regular file");
  }
}

TEST_F(FileSystemTest, AFileThatDoesNotFitIsAnErrorBeforeItIsWritten) {
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{.rlim_cur = 1 << 16, .rlim_max = old.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = error_of([&] {
    const auto file = files_->create(path("a"), 1 << 17);
    file->write_at(1 << 16, bytes_of("x"));  // where the file system could not claim space
  });
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(message.starts_with(path("a") + ": cannot ")) << message;
  EXPECT_TRUE(message.ends_with("File too large")) << message;
}

TEST(FileSystem, AFullDiskSaysWhatIsNeededAndFree) {
  try {
    throw_disk_full("runs/a/checkpoints", 4096, 17);
  } catch (const CheckpointError& error) {
    EXPECT_STREQ(error.what(), "runs/a/checkpoints: disk full: 4096 bytes needed, 17 free");
    EXPECT_EQ(error.exit_code(), ExitCode::kCheckpoint);
  }
}

}  // namespace
}  // namespace tessera
