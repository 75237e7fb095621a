// Do devices reach each other's memory, as the driver says? Tried once, before programs work there:
// what stands between two GPUs may carry their accesses elsewhere, without an error.
//
// One process makes a chunk on each device, as keepers do. Then each device has a process that sees
// that device alone, as executors do. All do a step before any begins the next one:
//
//   FILL    writes its own device's chunk
//   MEET    reads each other chunk, and leaves a mark in it
//   CHECK   looks in its own device's chunk for the marks of the others
//
// A device reaches another one's memory if it read what is there, and its mark arrived.

#ifndef FRMPS_SERVER_BACKEND_CUDA_PEERS_H
#define FRMPS_SERVER_BACKEND_CUDA_PEERS_H

struct backend_probe;

/**
 * Takes back what the driver says of pairs for which it is not true, with a line in the log for
 * each. Starts processes only where there are pairs; the caller has a single thread, and the driver
 * is not open in it. A process that does not answer within seconds reaches nothing.
 */
void cuda_peers_try(struct backend_probe *probe);

#endif
