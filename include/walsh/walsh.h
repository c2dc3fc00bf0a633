/* This is the C interface: open a model, tokenize, generate, hold conversations.
 *
 * Every function that can fail returns a status; walsh_error() then gives the reason in one line.
 * No exception leaves a function, and nothing is printed. Texts are UTF-8. Options are JSON
 * objects such as {"temperature": 0.7, "stop": ["\n"]}; their keys are the fields of the C++
 * headers, and unknown keys are refused. NULL means no options.
 *
 * A model and its sessions may be used by one thread at a time only, except walsh_session_stop.
 * Sessions can be closed in any order; a closed model is released with its last session.
 */
#ifndef WALSH_WALSH_H
#define WALSH_WALSH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct walsh_model walsh_model;
typedef struct walsh_session walsh_session;

/* The values are the exit statuses of the command. */
typedef enum walsh_status {
  WALSH_OK = 0,
  WALSH_INTERNAL = 1,     /* a bug in walsh */
  WALSH_USAGE = 2,        /* a wrong argument or option */
  WALSH_BAD_INPUT = 3,    /* a file is corrupt or not supported */
  WALSH_LIMIT = 4,        /* memory or another limit would be exceeded */
  WALSH_IO = 5,           /* the operating system refused to open, read or write */
  WALSH_INTERRUPTED = 130 /* walsh_session_stop while the prompt was evaluated */
} walsh_status;

typedef enum walsh_finish {
  WALSH_FINISH_STOP_TOKEN = 0, /* the model ended the text */
  WALSH_FINISH_MAX_TOKENS = 1,
  WALSH_FINISH_CONTEXT_FULL = 2,
  WALSH_FINISH_STOPPED = 3, /* by the callback or walsh_session_stop */
  WALSH_FINISH_STOP_STRING = 4
} walsh_finish;

typedef struct walsh_result {
  walsh_finish finish;
  int64_t prompt_tokens, cached_tokens; /* cached: prompt tokens that were not evaluated again */
  int64_t tokens;                       /* generated */
  double prompt_seconds, decode_seconds;
  uint64_t seed; /* the one in use */
} walsh_result;

/* Returns "0.2.0". */
const char* walsh_version(void);
/* Returns the error of the last call that failed on this thread, "" before. It is valid until the
 * next call. */
const char* walsh_error(void);

/* Opens a walsh file, a GGUF file or a Hugging Face folder. Options are those of EngineOptions
 * ("threads", "context", "device", ...); "compress" is the name of a type. *model is NULL on
 * failure. */
walsh_status walsh_open(const char* path, const char* options, walsh_model** model);
void walsh_close(walsh_model* model); /* NULL: nothing */

int64_t walsh_vocab_size(const walsh_model* model);
int64_t walsh_context(const walsh_model* model); /* positions */
double walsh_bits_per_weight(const walsh_model* model);

/* Texts and tokens are written to the caller's memory of `capacity` elements; *count is their
 * number. If it exceeds `capacity`, the call fails with WALSH_LIMIT and writes nothing: allocate
 * *count elements and call again. `capacity` 0 with `tokens` NULL queries the number. Texts end
 * with a zero byte, which `capacity` includes and *length does not. */
walsh_status walsh_tokenize(const walsh_model* model, const char* text, size_t length,
                            int add_special, int32_t* tokens, size_t capacity, size_t* count);
walsh_status walsh_detokenize(const walsh_model* model, const int32_t* tokens, size_t count,
                              int skip_special, char* text, size_t capacity, size_t* length);
/* Applies the model's chat template to a conversation. `messages` is a JSON list of
 * objects with "role" and "content". Tokenize it with add_special 0. */
walsh_status walsh_chat_prompt(const walsh_model* model, const char* messages, char* text,
                               size_t capacity, size_t* length);
/* Writes [walsh_vocab_size] logits after the last of `count` tokens, which start a new text. */
walsh_status walsh_logits(walsh_model* model, const int32_t* tokens, size_t count, float* logits);

/* Opens a separate context, which evaluates only what differs from its last prompt and text.
 * `context` is a number of positions; 0: the model's. *session is NULL on failure. */
walsh_status walsh_session_open(walsh_model* model, int64_t context, walsh_session** session);
void walsh_session_close(walsh_session* session); /* NULL: nothing */
void walsh_session_reset(walsh_session* session); /* forgets its tokens */

/* Receives the text in pieces of complete UTF-8 without a zero byte; returning 0 stops. */
typedef int (*walsh_callback)(void* user, const char* piece, size_t length);

/* Continues a prompt. Options are those of GenerationOptions ("max_tokens", "temperature",
 * "stop", "json_schema", ...). `result` may be NULL. */
walsh_status walsh_generate(walsh_session* session, const char* prompt, size_t length,
                            const char* options, walsh_callback callback, void* user,
                            walsh_result* result);
walsh_status walsh_generate_tokens(walsh_session* session, const int32_t* prompt, size_t count,
                                   const char* options, walsh_callback callback, void* user,
                                   walsh_result* result);
/* Adds an image to the next generated prompt, whether its generation succeeds or not: the content
 * of a JPEG, PNG or WebP file for the next placeholder of an image in it. */
walsh_status walsh_session_add_image(walsh_session* session, const void* data, size_t length);
/* Ends the text that is being generated, if any. May be called on any thread and in signal
 * handlers. */
void walsh_session_stop(walsh_session* session);

#ifdef __cplusplus
}
#endif

#endif
