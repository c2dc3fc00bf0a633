// Reads a Hugging Face folder whose linear layers walsh has coded (docs/formats/folder.md).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "weights/checkpoint_source.h"
#include "weights/folder_config.h"

namespace walsh {

class WalshFolder : public WeightSource {
 public:
  // Opens a folder. Throws what Checkpoint::open, read_folder_config and parse_config throw, and
  // bad_input for a module whose arrays are missing or do not have the sizes that its shape
  // requires.
  static std::unique_ptr<WalshFolder> open(const std::string& folder);

  const std::string& producer() const { return config_.producer; }
  const std::string& recipe() const { return config_.recipe; }  // it is JSON

  std::string path() const override { return dense_.path(); }
  std::vector<std::string> notes() const override;
  std::string_view config_json() const override { return dense_.config_json(); }
  std::string_view generation_config_json() const override {
    return dense_.generation_config_json();
  }
  std::string_view tokenizer_json() const override { return dense_.tokenizer_json(); }
  std::string_view tokenizer_config_json() const override { return dense_.tokenizer_config_json(); }
  bool contains(const std::string& name) const override;
  // Returns the names of all tensors. Parts of fused matrices have their own names.
  std::vector<std::string> names() const override;
  const Format& format_of(const std::string& name) const override;
  StoredForm form_of(const std::string& name) const override;
  Tensor load(const std::string& name) override;
  void release(const std::string& name) override;

 private:
  struct Coded {
    StoredModule form;
    std::vector<const TensorInfo*> arrays;  // they are in the order of array_specs
  };
  // Says whether a tensor is stored in all of a coded matrix or in the rows of a part.
  struct Found {
    const Coded* coded = nullptr;      // null means that it is not coded
    const TensorPart* part = nullptr;  // null means the whole matrix
  };

  WalshFolder(FolderConfig config, CheckpointSource dense)
      : config_(std::move(config)), dense_(std::move(dense)), checkpoint_(dense_.checkpoint()) {}
  // Finds the arrays of all modules but those whose tensors are among the ones left out, because
  // walsh does not run them.
  void bind_modules(const std::set<std::string>& left_out);
  void add_parts(const std::vector<TensorPart>& parts);
  Found find(const std::string& name) const;
  Tensor load_whole(const Coded& coded, const std::string& name) const;

  FolderConfig config_;
  CheckpointSource dense_;  // it has the tensors that are not coded
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::map<std::string, Coded> coded_;       // the key is the name of the weight
  std::map<std::string, TensorPart> parts_;  // coded weights have these, by their names
};

}  // namespace walsh
