/* generate_c MODEL PROMPT shows the C interface. */
#include <walsh/walsh.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print(void* user, const char* piece, size_t length) {
  return fwrite(piece, 1, length, (FILE*)user) == length;
}

/* Prints why the last call failed; returns the exit status. */
static int fail(walsh_status status) {
  fprintf(stderr, "%s\n", walsh_error());
  return (int)status;
}

static int talk(walsh_model* model, const char* prompt) {
  walsh_session* session = NULL;
  walsh_result result;
  int32_t* tokens = NULL;
  size_t count = 0;
  /* The first call gives the number, the second the tokens. */
  walsh_status status = walsh_tokenize(model, prompt, strlen(prompt), 1, NULL, 0, &count);
  if (status == WALSH_OK) {
    tokens = malloc((count + 1) * sizeof *tokens);
    if (tokens == NULL) return WALSH_LIMIT;
    status = walsh_tokenize(model, prompt, strlen(prompt), 1, tokens, count, &count);
  }
  if (status == WALSH_OK) status = walsh_session_open(model, 0, &session);
  if (status == WALSH_OK)
    status = walsh_generate_tokens(session, tokens, count,
                                   "{\"max_tokens\": 16, \"temperature\": 0, \"stop\": [\"\\n\"]}",
                                   print, stdout, &result);
  if (status == WALSH_OK)
    printf("\n%d tokens behind %d\n", (int)result.tokens, (int)result.prompt_tokens);
  walsh_session_close(session);
  free(tokens);
  return status == WALSH_OK ? 0 : fail(status);
}

int main(int argc, char** argv) {
  walsh_model* model = NULL;
  walsh_status status;
  int result;
  if (argc != 3) {
    fprintf(stderr, "usage: generate_c MODEL PROMPT\n");
    return WALSH_USAGE;
  }
  status = walsh_open(argv[1], "{\"context\": 512}", &model);
  if (status != WALSH_OK) return fail(status);
  result = talk(model, argv[2]);
  walsh_close(model);
  return result;
}
