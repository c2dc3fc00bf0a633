#include "eval/stored_logits.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::string_view kMagic = "_logits_";
constexpr uint64_t kHeaderBytes = 8 + 3 * 4;
constexpr float kCutOff = -16;
// Each number of the header is at most this, so that products fit in 64 bits.
constexpr int64_t kMost = int64_t{1} << 24;

template <typename T>
T read_at(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

uint64_t row_bytes(int64_t vocab) {
  return static_cast<uint64_t>((vocab + 1) / 2) * 4 + 8;
}

}  // namespace

StoredLogits::StoredLogits(const std::string& path) : file_(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorCode::bad_input, path, reason);
  };
  if (!as_text(bytes).starts_with(kMagic) || bytes.size() < kHeaderBytes)
    refuse("is no file of log-probabilities that llama-perplexity wrote");
  ctx_ = read_at<int32_t>(bytes, 8);
  vocab_ = read_at<int32_t>(bytes, 12);
  windows_ = read_at<int32_t>(bytes, 16);
  const bool plausible = ctx_ >= 4 && vocab_ >= 1 && windows_ >= 1 && ctx_ <= kMost &&
                         vocab_ <= kMost && windows_ <= kMost;
  if (!plausible) {
    refuse(
        fmt::format("has {} windows of {} tokens of a vocabulary of {}", windows_, ctx_, vocab_));
  }
  const auto ctx = static_cast<uint64_t>(ctx_), windows = static_cast<uint64_t>(windows_);
  const uint64_t rows = ctx - 1 - ctx / 2;
  // A window's size is below 2^51, so that windows that fit in the file are counted by a division.
  const uint64_t of_window = ctx * 4 + rows * row_bytes(vocab_);
  const uint64_t size = bytes.size() - kHeaderBytes;
  if (size / of_window != windows || size % of_window != 0) {
    refuse(
        fmt::format("has {} bytes, expected {} windows of {}", bytes.size(), windows, of_window));
  }
  for (int64_t w = 0; w < windows_; ++w) {
    for (const int32_t token : tokens(w))
      if (token < 0 || token >= vocab_)
        refuse(fmt::format("has the token {} in a vocabulary of {}", token, vocab_));
  }
}

std::vector<int32_t> StoredLogits::tokens(int64_t window) const {
  std::vector<int32_t> result(static_cast<size_t>(ctx_));
  std::memcpy(result.data(), file_.bytes().data() + kHeaderBytes + window * ctx_ * 4,
              result.size() * 4);
  return result;
}

void StoredLogits::read_row(int64_t window, int64_t position, std::span<float> row) const {
  const int64_t rows = ctx_ - 1 - first_position();
  const int64_t index = window * rows + position - first_position();
  const std::span<const std::byte> bytes =
      file_.bytes().subspan(kHeaderBytes + static_cast<uint64_t>(windows_ * ctx_) * 4 +
                                static_cast<uint64_t>(index) * row_bytes(vocab_),
                            row_bytes(vocab_));
  const auto scale = read_at<float>(bytes, 0), least = read_at<float>(bytes, 4);
  const bool is_cut = scale * 65535 > -0.999f * kCutOff;
  for (size_t i = 0; i < row.size(); ++i) {
    const auto code = read_at<uint16_t>(bytes, 8 + 2 * i);
    const float value = least + scale * static_cast<float>(code);
    row[i] = code == 0 && is_cut ? value + kCutOff : value;
  }
}

}  // namespace walsh
