// A model's weights come from a checkpoint as it is, a checkpoint compressed while it is read, or a
// walsh file. The model loader and the file writer see only this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "codec/tensor.h"

namespace walsh {

// This is stored for what is not rotated.
inline constexpr Rotation kNoRotation = {RotationKind::none, 32, 0, false};

// Says how a tensor is stored; it is known without reading the tensor.
struct StoredForm {
  const Format* format = nullptr;
  Rotation rotation[2] = {kNoRotation, kNoRotation};  // per pass
  Rotation output = kNoRotation;  // of the rows of a coded matrix: its product has to be rotated
                                  // back
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual std::string path() const = 0;  // for messages
  // Returns sentences about what users should know but what is no error, naming the place.
  virtual std::vector<std::string> notes() const { return {}; }
  // These return the Hugging Face files, verbatim unless a note says otherwise; empty when absent.
  virtual std::string_view config_json() const = 0;
  virtual std::string_view generation_config_json() const = 0;
  virtual std::string_view tokenizer_json() const = 0;
  virtual std::string_view tokenizer_config_json() const = 0;

  virtual bool contains(const std::string& name) const = 0;
  // Returns every tensor name, in file order.
  virtual std::vector<std::string> names() const = 0;
  // Returns the format that load() will give. Throws bad_input for a missing tensor.
  virtual const Format& format_of(const std::string& name) const = 0;
  // Returns the same with the rotations; a source that rotates nothing has only formats.
  virtual StoredForm form_of(const std::string& name) const { return {.format = &format_of(name)}; }
  // Throws bad_input naming file and tensor if it is missing or its content is not usable.
  virtual Tensor load(const std::string& name) = 0;
  // Tells which device will compute with the weights, before anybody asks for their forms: a source
  // that can give a tensor in several forms chooses one that the device is fast with.
  virtual void use_on(const Device& /*device*/) {}
  // Coded matrices of the layers and the head may from now on be given in the memory of `device`,
  // if it makes them there; others stay in host memory.
  virtual void encode_on(const Device& /*device*/) {}
  // Tells that the tensor's file pages are not needed again soon.
  virtual void release(const std::string& name) = 0;
  // Returns whether a rotation is folded into the residual stream (quantize/source/fold.h): an
  // input that a coded matrix does not rotate stands in a rotated basis already.
  virtual bool folded() const { return false; }
};

}  // namespace walsh
