#include "runtime/train/foreign_format.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace tessera {
namespace {

struct Signature {
  std::string_view bytes;
  std::string_view name;
};

using namespace std::string_view_literals;

constexpr std::array kSignatures = {
    Signature{"\x1f\x8b\x08"sv, "gzip"},
    Signature{"\x28\xb5\x2f\xfd"sv, "zstd"},
    Signature{"\xfd"
              "7zXZ\0"sv,
              "xz"},
    Signature{"BZh"sv, "bzip2"},
    Signature{"\x93NUMPY"sv, "NumPy .npy"},
    Signature{"MMIDIDX\0\0"sv, "Megatron index (.idx)"},
    Signature{"TNTIDX\0\0"sv, "fairseq index (.idx)"},
    Signature{"PAR1"sv, "Parquet"},
    Signature{"ARROW1"sv, "Arrow"},
    Signature{"\xff\xff\xff\xff"sv, "Arrow stream"},
    Signature{"\x89HDF\r\n\x1a\n"sv, "HDF5"},
    Signature{"GGUF"sv, "GGUF"},
    Signature{"PK\3\4"sv, "zip (PyTorch .pt, .npz)"},
    // Protocols 2 and 3 need their next bytes too: a raw file may well begin with token 640 (80 02).
    Signature{"\x80\2\x8a\n"sv, "PyTorch .pt"},
    Signature{"\x80\2}q"sv, "Python pickle"},
    Signature{"\x80\2]q"sv, "Python pickle"},
    Signature{"\x80\3}q"sv, "Python pickle"},
    Signature{"\x80\3]q"sv, "Python pickle"},
    Signature{"\x80\4\x95"sv, "Python pickle"},
    Signature{"\x80\5\x95"sv, "Python pickle"},
    Signature{"\n\x0e\n\5<unk>"sv, "SentencePiece model"},
    Signature{"SQLite format 3\0"sv, "SQLite"},
    Signature{"\x7f"
              "ELF"sv,
              "ELF program"},
    Signature{"%PDF-"sv, "PDF"},
    Signature{"\xff\xfe"sv, "UTF-16 text"},
    Signature{"\xfe\xff"sv, "UTF-16 text (big-endian)"},
    // llm.c's other files, by their magic numbers (i32, little-endian).
    Signature{"\x8a\xd8\x34\x01"sv, "llm.c evaluation file"},
    Signature{"\xc6\xd7\x34\x01"sv, "llm.c model checkpoint"},
    Signature{"\xc7\xd7\x34\x01"sv, "llm.c debug state"},
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::optional<std::string_view> foreign_format(std::span<const std::byte> head) {
  const std::string_view text = as_text(head);
  for (const Signature& signature : kSignatures) {
    if (text.starts_with(signature.bytes)) return signature.name;
  }
  if (text.size() > 262 && text.substr(257, 5) == "ustar") return "tar";
  // safetensors: the length of the header as u64, then JSON.
  if (text.size() > 10 && text.substr(8, 2) == "{\"" && text[7] == '\0' && text[6] == '\0') return "safetensors";
  return std::nullopt;
}

std::size_t utf8_sequence(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const auto continues = [&](std::size_t i) { return i < bytes.size() && (at(i) & 0xc0) == 0x80; };
  if (bytes.empty()) return 0;
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4 || !continues(1)) return 0;
  if (lead < 0xe0) return 2;
  // The second byte excludes overlong forms (e0, f0), surrogates (ed) and values above U+10FFFF (f4).
  if (lead == 0xe0 && at(1) < 0xa0) return 0;
  if (lead == 0xed && at(1) > 0x9f) return 0;
  if (lead == 0xf0 && at(1) < 0x90) return 0;
  if (lead == 0xf4 && at(1) > 0x8f) return 0;
  if (!continues(2)) return 0;
  if (lead < 0xf0) return 3;
  return continues(3) ? 4 : 0;
}

std::size_t utf8_prefix(std::string_view bytes) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    const std::size_t length = utf8_sequence(bytes.substr(position));
    if (length == 0) break;
    position += length;
  }
  return position;
}

bool is_utf8(std::string_view bytes, bool may_be_cut) {
  const std::size_t good = utf8_prefix(bytes);
  if (good == bytes.size()) return true;
  // Up to three bytes of a sequence that the end cut off: completing it with continuation bytes makes it whole.
  const std::string_view rest = bytes.substr(good);
  if (!may_be_cut || rest.size() > 3) return false;
  for (const char* filler : {"\x80\x80\x80", "\xa0\x80\x80", "\x90\x80\x80"}) {
    std::string completed(rest);
    completed += filler;
    if (utf8_sequence(completed) > rest.size()) return true;
  }
  return false;
}

bool looks_like_text(std::span<const std::byte> bytes) {
  // A sample from the middle may begin inside a character.
  for (int i = 0; i < 3 && !bytes.empty() && (bytes[0] & std::byte{0xc0}) == std::byte{0x80}; ++i)
    bytes = bytes.subspan(1);
  if (bytes.empty()) return false;
  std::size_t printable = 0;
  for (const std::byte byte : bytes) {
    const auto c = static_cast<std::uint8_t>(byte);
    const bool space = c >= 0x08 && c <= 0x0d;
    if ((c < 0x20 && !space && c != 0x1b) || c == 0x7f) return false;
    if (c < 0x7f) ++printable;
  }
  return printable * 100 >= bytes.size() * 85 || is_utf8(as_text(bytes), true);
}

}  // namespace tessera
