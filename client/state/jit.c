// Compiler options of a module load, to the service and back. Runs on the program's threads.

#include "client/state/jit.h"

#include <string.h>

#include "client/state/log.h"

/* Meaning of an option's value slot. */
enum shape {
	NUMBER,
	BUFFER, /* address of a log buffer: goes as 1, filled here */
	BUFFER_SIZE,
	OUTPUT, /* only written */
	LIST,	/* address of a list in the program's memory */
};

static enum shape shape_of(CUjit_option option)
{
	switch ((int)option) {
	case CU_JIT_INFO_LOG_BUFFER:
	case CU_JIT_ERROR_LOG_BUFFER:
		return BUFFER;
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
		return BUFFER_SIZE;
	case CU_JIT_WALL_TIME:
		return OUTPUT;
	case CU_JIT_GLOBAL_SYMBOL_NAMES:
	case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
	case CU_JIT_GLOBAL_SYMBOL_COUNT:
	case CU_JIT_REFERENCED_KERNEL_NAMES:
	case CU_JIT_REFERENCED_KERNEL_COUNT:
	case CU_JIT_REFERENCED_VARIABLE_NAMES:
	case CU_JIT_REFERENCED_VARIABLE_COUNT:
		return LIST;
	default:
		return NUMBER;
	}
}

static struct jit_log *log_of(struct jit *jit, CUjit_option option)
{
	bool info = option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES;

	return info ? &jit->info : &jit->error;
}

static void send(struct jit *jit, CUjit_option option, uint64_t value)
{
	jit->options[jit->count++] = (struct wire_option){.id = (uint32_t)option, .value = value};
}

static CUresult read_option(struct jit *jit, CUjit_option option, void **slot)
{
	/* The upper half of the slot of a 32-bit option may hold anything. */
	uint32_t number = (uint32_t)(uintptr_t)*slot;

	if ((int)option < 0 || option >= CU_JIT_NUM_OPTIONS)
		return CUDA_ERROR_INVALID_VALUE;
	switch (shape_of(option)) {
	case BUFFER:
		log_of(jit, option)->at = *slot;
		break;
	case BUFFER_SIZE:
		log_of(jit, option)->bytes = number;
		log_of(jit, option)->slot = slot;
		break;
	case OUTPUT:
		jit->wall_time = slot;
		break;
	case LIST:
		client_log(CLIENT_LOG_ERROR, "compiler option %d (lists of symbols) is not supported",
			(int)option);
		return CUDA_ERROR_NOT_SUPPORTED;
	case NUMBER:
		send(jit, option, number);
		break;
	}
	return CUDA_SUCCESS;
}

/* The service gets the size of a buffer instead of the buffer and its size. */
static void send_log(struct jit *jit, const struct jit_log *log, CUjit_option buffer, CUjit_option size)
{
	if (!log->at || log->bytes == 0)
		return;
	send(jit, buffer, log->bytes);
	send(jit, size, log->bytes);
}

CUresult jit_begin(unsigned int count, const CUjit_option *options, void **values, struct jit *ret_jit)
{
	memset(ret_jit, 0, sizeof(*ret_jit));
	if (count > JIT_OPTIONS_MAX - 4 || (count > 0 && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; ++i) {
		CUresult result = read_option(ret_jit, options[i], &values[i]);

		if (result != CUDA_SUCCESS)
			return result;
	}
	send_log(ret_jit, &ret_jit->info, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
	send_log(ret_jit, &ret_jit->error, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
	jit_start_clock(ret_jit);
	return CUDA_SUCCESS;
}

/* The reported size is the text's without its NUL, or the buffer's if the text was cut. */
static void fill_log(const struct jit_log *log, const char *text)
{
	size_t length = strlen(text), size = length;

	if (log->at && log->bytes > 0) {
		if (length > log->bytes - 1) {
			length = log->bytes - 1;
			size = log->bytes;
		}
		memcpy(log->at, text, length);
		log->at[length] = '\0';
	} else {
		size = 0;
	}
	if (log->slot)
		*log->slot = (void *)(uintptr_t)size;
}

static double milliseconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - start->tv_sec) * 1e3 + (double)(now.tv_nsec - start->tv_nsec) / 1e6;
}

void jit_report(struct jit *jit, const char *info, const char *error)
{
	fill_log(&jit->info, info);
	fill_log(&jit->error, error);
}

void jit_start_clock(struct jit *jit)
{
	clock_gettime(CLOCK_MONOTONIC, &jit->start);
}

void jit_report_time(struct jit *jit)
{
	float time;

	jit->spent += milliseconds_since(&jit->start);
	if (!jit->wall_time)
		return;
	time = (float)jit->spent;
	memcpy(jit->wall_time, &time, sizeof(time));
}

void jit_end(struct jit *jit, bool succeeded, const char *text)
{
	jit_report(jit, succeeded ? text : "", succeeded ? "" : text);
	jit_report_time(jit);
}
