// Where the code of kernels lies on the device: which module and kernel a program counter belongs
// to; and what images say of kernels.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CODE_H
#define FRMPS_SERVER_BACKEND_CUDA_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/backend/backend.h"

struct backend_module;

/* What the image of a module says of its kernels: the length of the code, and the shape of
 * launches. */
struct code_facts {
	struct code_fact *at;
	uint32_t count, room;
};

/**
 * Adds the kernels of a cubin. Of several cubins with the same kernel the driver may load any: the
 * shortest counts, and the shape only if it is that of all. Any bytes; parts that are not
 * understood add nothing. Single thread at a time.
 */
void code_facts_add(struct code_facts *facts, const uint8_t *cubin, size_t bytes);
/** When all are added, before anybody asks. An image may have very many cubins: not after each. */
void code_facts_sort(struct code_facts *facts);
/** Return: bytes; 0: not known. Any thread, while nobody adds. */
uint64_t code_length(const struct code_facts *facts, const char *kernel);
/** As code_length(). Return: without demands where it is not known */
struct backend_shape code_shape(const struct code_facts *facts, const char *kernel);
void code_facts_deinit(struct code_facts *facts);

/* A kernel's code. */
struct code {
	struct backend_module *module; /* a name, not to be looked into */
	uint64_t entry, bytes;	       /* virtual address on the device; bytes: 0 if not known */
	bool calls;	  /* may call functions of the driver that change shared state of all programs */
	char kernel[128]; /* mangled, cut if longer */
};

/** From now on the kernel's code lies at this address. @kernel: the name, copied here. Any thread.
 * Without memory the kernel stays unknown. */
void code_note(const struct code *code, const char *kernel);
/** Before the module is unloaded: other code may lie there afterwards. Any thread; NULL is fine. */
void code_forget(const struct backend_module *module);
/** The kernel that begins at an address, or in whose code an address lies. Any thread. Return:
 * false if there is none */
bool code_find_entry(uint64_t entry, struct code *ret_code);
bool code_find(uint64_t address, struct code *ret_code);

#endif
