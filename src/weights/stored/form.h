// Describes how checkpoints store matrices that are quantized already. It says which tensors belong
// together and which function reads them. A way of storing is a file of this folder and a row of
// the table in forms.cpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "arch/stored_method.h"
#include "codec/tensor.h"
#include "io/checkpoint.h"
#include "weights/stored/array.h"

namespace walsh {

// Finds the tensors of a checkpoint that belong to one matrix, because their names begin with the
// same stem.
class StoredParts {
 public:
  StoredParts(const Checkpoint& checkpoint, std::string stem)
      : checkpoint_(checkpoint), stem_(std::move(stem)) {}
  // Returns the tensor whose name ends so, if there is one.
  std::optional<StoredArray> find(std::string_view ending) const;
  // Does the same, and throws bad_input if there is none.
  StoredArray get(std::string_view ending) const;
  bool contains(std::string_view ending) const;

 private:
  const Checkpoint& checkpoint_;
  std::string stem_;
};

// Represents a matrix whose tensors have valid types, shapes and indices. It refers to the
// checkpoint.
class StoredMatrix {
 public:
  StoredMatrix(int64_t rows, int64_t cols, DType dtype = DType::f32)
      : rows_(rows), cols_(cols), dtype_(dtype) {}
  virtual ~StoredMatrix() = default;
  StoredMatrix(const StoredMatrix&) = delete;
  StoredMatrix& operator=(const StoredMatrix&) = delete;

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // Returns the format that decode() writes.
  const Format& dense() const { return dense_format(dtype_); }
  // Returns a format with codes that holds every value bit for bit, or null if there is none.
  virtual const Format* coded() const { return nullptr; }
  // Returns rows [first, first + count) in dense() or coded().
  Tensor load(const Format& format, int64_t first, int64_t count) const;

 protected:
  // Writes rows to out[count * cols], which has elements of dense().
  virtual void decode(int64_t first, int64_t count, std::byte* out) const = 0;
  virtual Tensor encode(const Format& format, int64_t first, int64_t count) const;

 private:
  int64_t rows_, cols_;
  DType dtype_;
};

using StoredMatrixPtr = std::unique_ptr<StoredMatrix>;

// Describes one way to name the tensors of a matrix. The matrix STEM + whole is there if the tensor
// STEM + values is, has the type `dtype` (any, if that is empty), and STEM + beside is there as
// well (unless that is empty).
struct StoredNames {
  std::string_view whole, values, dtype, beside;
  StoredMatrixPtr (*open)(const StoredParts& parts, const StoredMethod& stored);
  // The matrices of experts, [experts, n, k], are stored transposed as [experts, k, n].
  bool turned_experts = false;
};

// Describes how checkpoints of one kind of quantization store matrices.
struct StoredKind {
  StoredMethod::Kind kind;
  std::string_view text;  // messages name the kind by this
  bool below_8_bits;
  bool exact_codes;  // a format may hold a matrix bit for bit (StoredMatrix::coded)
  std::span<const StoredNames> forms;        // the first that fits counts
  std::span<const std::string_view> unseen;  // tensors with these endings are seen through others
};

// Returns the description of a kind, or null for Kind::none.
const StoredKind* stored_kind(StoredMethod::Kind kind);

// Each kind is defined in the source that reads it.
extern const StoredKind kStoredFp8, kStoredMxfp4, kStoredCompressed, kStoredGptq, kStoredAwq,
    kStoredBnb;

}  // namespace walsh
