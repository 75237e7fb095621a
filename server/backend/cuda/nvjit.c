// See nvjit.h.

#include "server/backend/cuda/nvjit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/driver.h"

#define LIBRARY "libnvidia-ptxjitcompiler.so.1"

struct nvjit nvjit;

static const struct {
	const char *name;
	void *function;
} functions[] = {
	{"nvPTXCompilerCreate", &nvjit.ptx_create},
	{"nvPTXCompilerCompile", &nvjit.ptx_compile},
	{"nvPTXCompilerDestroy", &nvjit.ptx_destroy},
	{"nvPTXCompilerGetCompiledProgramSize", &nvjit.ptx_bytes},
	{"nvPTXCompilerGetCompiledProgram", &nvjit.ptx_code},
	{"nvPTXCompilerGetErrorLogSize", &nvjit.ptx_logs.error_bytes},
	{"nvPTXCompilerGetErrorLog", &nvjit.ptx_logs.errors},
	{"nvPTXCompilerGetInfoLogSize", &nvjit.ptx_logs.remark_bytes},
	{"nvPTXCompilerGetInfoLog", &nvjit.ptx_logs.remarks},
	{"nvLinkerCreate", &nvjit.link_create},
	{"nvLinkerAddCubin", &nvjit.link_add},
	{"nvLinkerFinish", &nvjit.link_finish},
	{"nvLinkerDestroy", &nvjit.link_destroy},
	{"nvLinkerGetLinkedCubinSize", &nvjit.link_bytes},
	{"nvLinkerGetLinkedCubin", &nvjit.link_code},
	{"nvLinkerGetErrorLogSize", &nvjit.link_logs.error_bytes},
	{"nvLinkerGetErrorLog", &nvjit.link_logs.errors},
	{"nvLinkerGetInfoLogSize", &nvjit.link_logs.remark_bytes},
	{"nvLinkerGetInfoLog", &nvjit.link_logs.remarks},
};

static bool resolve(void *library)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *function = dlsym(library, functions[i].name);

		if (!function)
			return false;
		memcpy(functions[i].function, &function, sizeof(function));
	}
	return true;
}

bool nvjit_open(void)
{
	static bool tried, found;
	void *library = tried ? NULL : driver_library(LIBRARY);

	found |= library && resolve(library);
	tried = true;
	return found;
}

/* In lines. */
static void append(char *text, size_t room, const char *more)
{
	size_t length = strlen(text), more_length = strlen(more);

	if (length && *more && length + 1 < room)
		text[length++] = '\n';
	if (more_length >= room - length)
		more_length = room - length - 1;
	memcpy(text + length, more, more_length);
	length += more_length;
	text[length] = '\0';
	while (length && text[length - 1] == '\n')
		text[--length] = '\0';
}

static void take(nvjit_handle handle, int (*size)(nvjit_handle, size_t *), int (*get)(nvjit_handle, char *),
	char *text, size_t room)
{
	size_t bytes = 0;
	char *whole;

	if (size(handle, &bytes) || !bytes)
		return;
	whole = calloc(1, bytes + 1);
	if (whole && !get(handle, whole))
		append(text, room, whole);
	free(whole);
}

void nvjit_take_log(const struct nvjit_logs *logs, nvjit_handle handle, struct nvjit_log *log)
{
	take(handle, logs->error_bytes, logs->errors, log->errors, sizeof(log->errors));
	take(handle, logs->remark_bytes, logs->remarks, log->remarks, sizeof(log->remarks));
}
