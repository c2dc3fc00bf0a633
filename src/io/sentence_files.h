// Reads the files that sentence-transformers puts beside a checkpoint: they say how the output of
// the layers becomes an embedding.
#pragma once

#include <string>

namespace walsh {

// Returns {"pooling": "last" | "mean" | "cls", "normalize": true | false} from modules.json and the
// config.json of its pooling. Returns an empty text if there is no folder or it has no
// modules.json. Throws bad_input naming the file for anything malformed, and for modules and
// poolings that walsh does not have.
std::string embedding_of_folder(const std::string& folder);

}  // namespace walsh
