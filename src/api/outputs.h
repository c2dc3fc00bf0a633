// Checks outputs before long work instead of after it.
#pragma once

#include <string>
#include <vector>

namespace walsh {

// Throws usage if one of the files `outputs` (empty names count as none) belongs to the checkpoint
// `folder` or to `inputs` (by device and inode), if it would belong to that checkpoint when it is
// written, if two outputs are the same file, or if one is `new_folder`, which is written as well
// unless it is empty. Throws what AtomicFile throws if one cannot be created. Leaves nothing
// behind. Throws as Checkpoint::open if `folder` is a folder but no checkpoint; nothing else is
// checked.
void check_outputs(const std::vector<std::string>& outputs, const std::string& folder,
                   std::vector<std::string> inputs, const std::string& new_folder = "");

}  // namespace walsh
