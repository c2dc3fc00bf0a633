// Takes the images out of the messages of a chat.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/image_reader.h"
#include "io/json.h"
#include "serve/api_error.h"

namespace walsh {

// A request has at most this many images.
inline constexpr size_t kMostImages = 32;

// Returns the content of a file in base64 (RFC 4648), whose padding may be missing. Throws ApiError
// 400 naming the field `path` for anything else.
std::string decoded_base64(std::string_view text, const std::string& path);

// Returns whether `content` is a list in which some object has this type.
bool has_part(const OrderedJson& content, const char* type);

// Makes the image part of a chat from a file in base64, as Anthropic's API and Ollama's have it.
OrderedJson image_part(const std::string& base64, const std::string& type = "");

// Replaces every part {"type": "image_url", "image_url": {"url": "data:..."}} of the messages in
// `chat` by {"type": "image"}, which templates expect, and returns the contents of these files in
// their order. Throws ApiError 400 for other URLs and types, for data that is no base64, too many
// images, and where the model takes none. Leaves what is no message to others.
std::vector<std::string> take_images(OrderedJson& chat, const ImageReader& reader);

// Returns the answer that says why images cannot be shown, from what ImageReader has thrown.
ApiError image_error(const Error& error);

// Returns whether a body may have images. Their towers take seconds on CPUs.
bool may_have_images(std::string_view body);

}  // namespace walsh
