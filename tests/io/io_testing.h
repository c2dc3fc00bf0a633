// Shares between the io tests a temporary folder, byte helpers, and a check of an Error's code and
// text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "temporary_folder.h"
#include "walsh/error.h"

namespace walsh::testing {

using namespace ::testing;  // Names of the framework are not hidden by this namespace.

using Bytes = std::vector<std::byte>;

using test::TemporaryFolder;

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline Bytes to_bytes(std::string_view text) {
  Bytes result(text.size());
  std::memcpy(result.data(), text.data(), text.size());
  return result;
}

// Makes writes beyond `bytes` fail with EFBIG, as a full disk would with ENOSPC.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

template <typename T>
void append_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Runs `action`, which must throw an Error of that code whose text holds every one of `parts`.
template <typename Action>
void expect_error(Action&& action, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    for (const auto& part : parts)
      EXPECT_THAT(e.what(), ::testing::HasSubstr(part));
    EXPECT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos) << e.what();
    return;
  }
  ADD_FAILURE() << "no Error was thrown; expected one about "
                << (parts.empty() ? "anything" : parts[0]);
}

// These values break careless readers when they stand in a length, count or offset field.
inline const std::vector<uint64_t>& hostile_numbers() {
  static const std::vector<uint64_t> kNumbers{0,
                                              1,
                                              0x7F,
                                              0x80,
                                              0xFF,
                                              0xFFFF,
                                              1u << 31,
                                              0xFFFFFFFFu,
                                              (1ull << 31) - 1,
                                              (1ull << 42) + 1,
                                              1ull << 62,
                                              (1ull << 63) - 1,
                                              1ull << 63,
                                              ~0ull - 7,
                                              ~0ull};
  return kNumbers;
}

}  // namespace walsh::testing
