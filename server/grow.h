// Arrays that grow. For the thread that owns the array.

#ifndef FRMPS_SERVER_GROW_H
#define FRMPS_SERVER_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Makes room for one more element.
 * @array: address of the pointer to the array, which may move; the pointer may be NULL
 * @count: elements there are; @room: elements that fit
 * @bytes: of an element
 * Return: false without memory: then nothing has changed
 */
bool grow(void *array, uint32_t count, uint32_t *room, size_t bytes);

#endif
