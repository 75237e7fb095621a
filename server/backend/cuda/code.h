// Where the code of kernels lies on the device: which module and kernel a program counter belongs
// to.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CODE_H
#define FRMPS_SERVER_BACKEND_CUDA_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend_module;

/* The length of the code of each kernel of a module, from its image. */
struct code_lengths {
	struct code_length *at;
	uint32_t count, room;
};

/**
 * Adds the lengths of a cubin. Of several cubins with the same kernel the shortest counts: the
 * driver may load any. Any bytes; parts that are not understood add nothing. Single thread at a
 * time.
 */
void code_lengths_add(struct code_lengths *lengths, const uint8_t *cubin, size_t bytes);
/** When all are added, before anybody asks. An image may have very many cubins: not after each. */
void code_lengths_sort(struct code_lengths *lengths);
/** Return: bytes; 0: not known. Any thread, while nobody adds. */
uint64_t code_length(const struct code_lengths *lengths, const char *kernel);
void code_lengths_deinit(struct code_lengths *lengths);

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
