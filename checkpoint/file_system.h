// The file operations that a save and a load are made of. Everything goes through this interface, so that tests can fail or stop at any one
// of them; a save whose every call may be its last is correct when what it leaves behind is, whichever call that was.
//
// Every failure is a CheckpointError that names the path, what was tried and why it failed; a full disk also says how many bytes are needed
// and free. Objects of one file are used by one thread at a time; a FileSystem may be used by several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class WritableFile {
 public:
  // Closes the file if close() was not called; what goes wrong then stays unsaid.
  virtual ~WritableFile() = default;
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Returns when the bytes are durable.
  virtual void sync() = 0;
  // A network file system may only now say that the disk is full.
  virtual void close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual std::uint64_t size() const = 0;
  // Exactly bytes.size() bytes; an error where the file is shorter.
  virtual void read_at(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;
  friend bool operator==(const DirectoryEntry&, const DirectoryEntry&) = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // A new file that will hold `bytes` bytes; the space is claimed now where the file system can. An error where the path exists.
  virtual std::unique_ptr<WritableFile> create(const std::string& path, std::uint64_t bytes) = 0;
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  // One level; an error where the path exists.
  virtual void make_directory(const std::string& path) = 0;
  // An error where `to` exists, be it an empty folder.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Returns when the names in the folder are durable.
  virtual void sync_directory(const std::string& path) = 0;
  // A file, or a folder with all it holds; nothing where there is none.
  virtual void remove(const std::string& path) = 0;
  // By name, ascending.
  virtual std::vector<DirectoryEntry> list(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  // Bytes that this process may still write under `path`.
  virtual std::uint64_t free_bytes(const std::string& path) = 0;
};

// The real one. Short writes and interrupted calls are continued. What has been written is handed to the disk while more is being
// written, so that sync() finds little left to wait for.
std::unique_ptr<FileSystem> make_posix_file_system();

[[noreturn]] void throw_disk_full(const std::string& path, std::uint64_t needed_bytes, std::uint64_t free_bytes);

// "a/b/c" → "a/b"; "c" → ".".
std::string parent_directory(const std::string& path);

// A small file. read: CheckpointError where it is larger than max_bytes. write: created, written, synced and closed.
std::string read_small_file(FileSystem& files, const std::string& path, std::uint64_t max_bytes);
void write_small_file(FileSystem& files, const std::string& path, std::string_view text);

}  // namespace tessera
