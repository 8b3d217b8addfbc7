// The folder that `data prepare` makes: it fills under a temporary name and then takes its place.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tools/interrupt_guard.h"

namespace tessera {

inline constexpr std::string_view kTokenizerName = "tokenizer.model", kJsonTokenizerName = "tokenizer.json",
                                  kSummaryName = "dataset.json", kValidationName = "validation.bin";

class OutputFolder {
 public:
  // ConfigError where the path cannot be meant (a file, a link, a folder that holds files and is not to be overwritten, or that holds what data
  // prepare did not make); DataError where the folder cannot be made there.
  OutputFolder(const std::string& path, bool overwrite);
  // Removes what was not committed; a signal that ends the program does the same.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  std::filesystem::path file(std::string_view name) const { return temporary_ / name; }

  // Puts the folder in its place. Of the one that was there only the files that data prepare wrote are deleted, by name.
  void commit();

 private:
  void open(const std::string& path, bool overwrite);
  void replace();
  std::vector<std::filesystem::path> files_to_replace() const;

  std::string given_;
  std::filesystem::path path_, temporary_;
  bool replaces_ = false;
  std::mutex making_;
  std::unique_ptr<InterruptGuard> guard_;
};

}  // namespace tessera
