// Declares where a model's weights come from: a checkpoint as it is, a checkpoint that is
// compressed while it is read, or a walsh file. The model loader and the file writer see only this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "codec/tensor.h"

namespace walsh {

// What is not rotated has this rotation.
inline constexpr Rotation kNoRotation = {RotationKind::none, 32, 0, false};

// Says how a tensor is stored; it is known without reading the tensor.
struct StoredForm {
  const Format* format = nullptr;
  Rotation rotation[2] = {kNoRotation, kNoRotation};  // Each pass has one.
  // It is the rotation of the rows of a coded matrix; its product has to be rotated back.
  Rotation output = kNoRotation;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual std::string path() const = 0;  // Messages name it.
  // Returns sentences about what users should know although it is no error. They name the place.
  virtual std::vector<std::string> notes() const { return {}; }
  // These return the Hugging Face files, verbatim unless a note says otherwise; empty if absent.
  virtual std::string_view config_json() const = 0;
  virtual std::string_view generation_config_json() const = 0;
  virtual std::string_view tokenizer_json() const = 0;
  virtual std::string_view tokenizer_config_json() const = 0;

  virtual bool contains(const std::string& name) const = 0;
  // Returns every tensor name, in file order.
  virtual std::vector<std::string> names() const = 0;
  // Returns the format that load() will give. Throws bad_input for a missing tensor.
  virtual const Format& format_of(const std::string& name) const = 0;
  // Returns the format with the rotations. A source that rotates nothing has only formats.
  virtual StoredForm form_of(const std::string& name) const { return {.format = &format_of(name)}; }
  // Reads a tensor. Throws bad_input naming file and tensor if it is missing or its content is not
  // usable.
  virtual Tensor load(const std::string& name) = 0;
  // Tells which device will compute with the weights, before anybody asks for their forms. A source
  // that can give a tensor in several forms chooses one with which the device is fast.
  virtual void use_on(const Device& /*device*/) {}
  // Allows giving coded matrices of the layers and the head in the memory of `device` from now on,
  // if the source makes them there. Others stay in host memory.
  virtual void encode_on(const Device& /*device*/) {}
  // Tells that nobody needs the tensor's file pages again soon.
  virtual void release(const std::string& name) = 0;
  // Returns whether a rotation is folded into the residual stream (quantize/source/fold.h). An
  // input that a coded matrix does not rotate is then in a rotated basis already.
  virtual bool folded() const { return false; }
};

}  // namespace walsh
