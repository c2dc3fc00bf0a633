// Reads GPTQ and AWQ. They have integers in 32-bit words, transposed matrices whose rows are
// inputs, and scales and zero points per group of inputs. The layouts are those of AutoGPTQ,
// GPTQModel and AutoAWQ ("gemm").
#include <algorithm>

#include "codec/panels.h"
#include "weights/stored/integers.h"

namespace walsh {
namespace {

constexpr std::string_view kWeight = ".weight", kCodes = ".qweight", kZeros = ".qzeros",
                           kScales = ".scales", kIndex = ".g_idx";

// Reads matrices of GPTQ, in which a column of words is a stream of an output's codes along the
// inputs.
class GptqMatrix : public IntegerMatrix {
 public:
  GptqMatrix(IntegerLayout layout, StoredArray codes, StoredArray scales, StoredArray zeros,
             bool zeros_less_one)
      : IntegerMatrix(std::move(layout)),
        codes_(std::move(codes)),
        scales_(std::move(scales)),
        zeros_(std::move(zeros)),
        zeros_less_one_(zeros_less_one) {}

 private:
  void read_codes(int64_t first, int64_t count, uint8_t* out) const override {
    for (int64_t c = 0; c < cols(); ++c) {
      for (int64_t r = 0; r < count; ++r) {
        const auto word_at = [&](int64_t k) {
          return value_at<uint32_t>(codes_.data, static_cast<size_t>(k * rows() + first + r));
        };
        out[r * cols() + c] = static_cast<uint8_t>(number_at(word_at, c, layout().bits));
      }
    }
  }

  void read_groups(int64_t first, int64_t count, float* scales, int16_t* zeros) const override {
    const int64_t groups = layout().groups, words = zeros_.shape[1];
    const int bits = layout().bits;
    for (int64_t g = 0; g < groups; ++g) {
      const auto word_at = [&](int64_t k) {
        return value_at<uint32_t>(zeros_.data, static_cast<size_t>(g * words + k));
      };
      for (int64_t r = 0; r < count; ++r) {
        read_floats(scales_, g * rows() + first + r, 1, scales + r * groups + g);
        uint32_t zero = number_at(word_at, first + r, bits);
        if (zeros_less_one_) zero = (zero + 1) & ((1u << bits) - 1);
        zeros[r * groups + g] = static_cast<int16_t>(zero);
      }
    }
  }

  StoredArray codes_, scales_, zeros_;
  bool zeros_less_one_;
};

// Reads matrices of AWQ, in which a word has the codes of eight outputs, those of even numbers
// first.
class AwqMatrix : public IntegerMatrix {
 public:
  AwqMatrix(IntegerLayout layout, StoredArray codes, StoredArray scales, StoredArray zeros)
      : IntegerMatrix(std::move(layout)),
        codes_(std::move(codes)),
        scales_(std::move(scales)),
        zeros_(std::move(zeros)) {}

 private:
  uint8_t number(const StoredArray& words, int64_t input, int64_t output) const {
    const auto word =
        value_at<uint32_t>(words.data, static_cast<size_t>(input * (rows() / 8) + output / 8));
    const auto in_word = static_cast<uint32_t>(output % 8);
    return static_cast<uint8_t>(word >> (4 * (in_word % 2 * 4 + in_word / 2)) & 15);
  }

  void read_codes(int64_t first, int64_t count, uint8_t* out) const override {
    for (int64_t c = 0; c < cols(); ++c)
      for (int64_t r = 0; r < count; ++r)
        out[r * cols() + c] = number(codes_, c, first + r);
  }

  void read_groups(int64_t first, int64_t count, float* scales, int16_t* zeros) const override {
    const int64_t groups = layout().groups;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        read_floats(scales_, g * rows() + first + r, 1, scales++);
        *zeros++ = number(zeros_, g, first + r);
      }
    }
  }

  StoredArray codes_, scales_, zeros_;
};

// Finds the bits per number from an index of inputs, which tells how many inputs the words must
// hold. Matrices may differ ("dynamic" of GPTQModel).
void read_width_of(const StoredParts& parts, const StoredMethod& stored, const StoredArray& codes,
                   IntegerLayout& layout) {
  const int64_t words = codes.shape[0];
  const int named = stored.widths.empty() ? 4 : stored.widths.front();
  const auto index = parts.find(kIndex);
  layout.cols = words * 32 / named;
  if (index && index->shape.size() == 1 && index->shape[0] > 0) layout.cols = index->shape[0];
  const int64_t bits = words * 32 / layout.cols;
  const bool known = bits == 2 || bits == 3 || bits == 4 || bits == 8;
  layout.bits = known ? static_cast<int>(bits) : named;
  if (words_of(layout.cols, layout.bits) != words || layout.cols % 32 != 0)
    refuse_array(
        codes, "words of 2, 3, 4 or 8 bits for each of " + std::to_string(layout.cols) + " inputs");
}

// Reads the groups of inputs from the shape of the scales and from an index of inputs. `layout` has
// the shape.
void read_groups_of(const StoredParts& parts, const StoredMethod& stored, const StoredArray& scales,
                    IntegerLayout& layout) {
  expect_floats(scales);
  const int64_t named = stored.groups.empty() ? -1 : stored.groups.front();
  layout.group_cols = named > 0 ? named : layout.cols;
  layout.groups = ceil_div(layout.cols, layout.group_cols);
  if (!has_shape(scales, {layout.groups, layout.rows}))
    refuse_array(scales, "scales " + shape_text(std::vector{layout.groups, layout.rows}));
  layout.group_of = read_group_index(parts, kIndex, layout.cols, layout.groups, layout.group_cols);
}

StoredMatrixPtr open_gptq(const StoredParts& parts, const StoredMethod& stored) {
  const StoredArray codes = parts.get(kCodes), scales = parts.get(kScales),
                    zeros = parts.get(kZeros);
  expect_matrix(codes, "I32");
  IntegerLayout layout;
  layout.rows = codes.shape[1];
  read_width_of(parts, stored, codes, layout);
  read_groups_of(parts, stored, scales, layout);
  expect_array(zeros, "I32", {layout.groups, words_of(layout.rows, layout.bits)});
  return std::make_unique<GptqMatrix>(std::move(layout), codes, scales, zeros,
                                      stored.zeros_less_one);
}

StoredMatrixPtr open_awq(const StoredParts& parts, const StoredMethod& stored) {
  const StoredArray codes = parts.get(kCodes), scales = parts.get(kScales),
                    zeros = parts.get(kZeros);
  expect_matrix(codes, "I32");
  IntegerLayout layout;
  layout.rows = codes.shape[1] * 8;
  layout.cols = codes.shape[0];
  layout.bits = 4;
  read_groups_of(parts, stored, scales, layout);
  if (layout.cols % layout.group_cols != 0) refuse_array(codes, "whole groups of inputs");
  expect_array(zeros, "I32", {layout.groups, codes.shape[1]});
  return std::make_unique<AwqMatrix>(std::move(layout), codes, scales, zeros);
}

constexpr StoredNames kGptqForms[] = {{kWeight, kCodes, "", "", open_gptq}};
constexpr StoredNames kAwqForms[] = {{kWeight, kCodes, "", "", open_awq}};
constexpr std::string_view kUnseen[] = {kZeros, kScales, kIndex};

}  // namespace

constinit const StoredKind kStoredGptq = {
    StoredMethod::Kind::gptq, "GPTQ", true, true, kGptqForms, kUnseen};
constinit const StoredKind kStoredAwq = {
    StoredMethod::Kind::awq, "AWQ", true, true, kAwqForms, kUnseen};

}  // namespace walsh
