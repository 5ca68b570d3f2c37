//! The border: where numbers that Java keeps become references, and where panics and errors become
//! exceptions.
//!
//! # What Java keeps to
//!
//! The compiler cannot check callers on the other side, so all unsafe code of the crate is here, and rests on
//! four rules. `io.kvilt.Handle` and `io.kvilt.Scratch` are where Java keeps them.
//!
//! 1. A handle is a number that [`give`] returned, and is used as the type that it was given as.
//! 2. A handle is taken back once, when no call with it runs and none will begin.
//! 3. An address with a capacity is that of a direct buffer with as many bytes, which lives at least until
//!    the call returns, and which no other thread uses meanwhile.
//! 4. Only the class `Native` calls what is registered here, by the signatures of [`METHODS`].
//!
//! Thread rule: any thread may call anything; what a handle stands for may be used by several at once.
#![expect(unsafe_code, reason = "Java keeps handles and addresses as numbers")]

use std::{
    ffi::c_void,
    panic::{self, AssertUnwindSafe},
    slice,
};

use jni::{
    Env, EnvUnowned, JavaVM, NativeMethod, Outcome, jni_str,
    objects::{JByteArray, JByteBuffer},
    strings::JNIStr,
    sys::{JNI_ERR, JNI_VERSION_1_8, JNINativeInterface__1_1, jint, jlong, jvalue},
};
use kvilt::Error;

use crate::{
    failure::{Failure, raise},
    reads, scans, stores, writes,
};

/// Raised whenever a method of `Native` changes, so that a jar never calls a library that was built for
/// another one.
pub(crate) const BORDER_VERSION: jint = 1;

/// The class on the other side. It is looked up by `find_class`: that takes the class loader of the class
/// that calls, or that loads this library. By its name alone the crate `jni` would take the thread's context
/// class loader, which may know another `Native`, or none.
pub(crate) const NATIVE: &JNIStr = jni_str!("io/kvilt/Native");

/// Runs `work`, which calls nothing of Java's; if it fails or panics, throws and returns `otherwise`.
#[inline]
pub(crate) fn call<T>(
    env: &mut EnvUnowned<'_>,
    otherwise: T,
    work: impl FnOnce() -> Result<T, Failure>,
) -> T {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            raise(env, &failure);
            otherwise
        }
        Err(payload) => {
            raise(env, &Failure::panicked(&*payload));
            otherwise
        }
    }
}

/// Runs `work`, which may call Java; if it fails or panics, throws and returns `otherwise`.
pub(crate) fn call_java<'l, T>(
    env: &mut EnvUnowned<'l>,
    otherwise: T,
    work: impl FnOnce(&mut Env<'l>) -> Result<T, Failure>,
) -> T {
    match env.with_env(work).into_outcome() {
        Outcome::Ok(value) => value,
        Outcome::Err(failure) => {
            raise(env, &failure);
            otherwise
        }
        Outcome::Panic(payload) => {
            raise(env, &Failure::panicked(&*payload));
            otherwise
        }
    }
}

/// Hands a value over to Java, as a number.
pub(crate) fn give<T: Send + Sync>(value: T) -> jlong {
    Box::into_raw(Box::new(value)) as jlong
}

/// Lends what Java keeps as `handle`.
#[inline]
pub(crate) fn with<T: Send + Sync, R>(handle: jlong, work: impl FnOnce(&T) -> R) -> R {
    assert!(handle != 0, "Java calls with a handle that it does not have");
    // SAFETY: the number came from `give::<T>` (rule 1), and is not taken back while this call runs (rule 2).
    work(unsafe { &*(handle as *const T) })
}

/// Takes back what Java kept as `handle`.
pub(crate) fn take<T: Send + Sync>(handle: jlong) -> T {
    assert!(handle != 0, "Java gives back a handle that it does not have");
    // SAFETY: the number came from `give::<T>` (rule 1), and nobody uses it any more (rule 2).
    *unsafe { Box::from_raw(handle as *mut T) }
}

/// The memory of a buffer of Java's, cut in two behind `at` bytes: what came in, and room for what goes out.
#[inline]
pub(crate) fn with_memory<R>(
    address: jlong,
    capacity: jint,
    at: jint,
    work: impl FnOnce(&[u8], &mut [u8]) -> R,
) -> R {
    assert!(address != 0 && 0 <= at && at <= capacity, "Java calls with {at} of {capacity} bytes");
    // SAFETY: as many bytes are there, and this thread's alone, until the call returns (rule 3).
    let memory = unsafe { slice::from_raw_parts_mut(address as *mut u8, capacity as usize) };
    let (taken, room) = memory.split_at_mut(at as usize);
    work(taken, room)
}

/// Bytes of a buffer of a program's, which may lie in that of another argument of the call.
#[inline]
pub(crate) fn with_bytes<R>(address: jlong, len: jint, work: impl FnOnce(&[u8]) -> R) -> R {
    assert!(address != 0 && 0 <= len, "Java calls with {len} bytes");
    // SAFETY: as many bytes are there, and nobody changes them until the call returns (rule 3).
    work(unsafe { slice::from_raw_parts(address as *const u8, len as usize) })
}

/// Makes an array of Java's. Without memory for it, Java's error is pending. The crate `jni` would catch that
/// error and look its class up, for which there is no memory either: it tried again and again until the stack
/// was used up, and the process died.
pub(crate) fn byte_array<'l>(env: &Env<'l>, bytes: &[u8]) -> Result<JByteArray<'l>, Failure> {
    let len = jint::try_from(bytes.len())
        .map_err(|_| Error::invalid("a result has more than 2 GiB: ask for less at once"))?;
    let (raw, functions) = (env.get_raw(), functions(env));
    // SAFETY: `env` is this thread's, and nothing has been thrown: who calls would have returned.
    let array = unsafe { (functions.NewByteArray)(raw, len) };
    if array.is_null() {
        return Err(jni::errors::Error::JavaException.into());
    }
    // SAFETY: the array is new and has as many bytes.
    unsafe { (functions.SetByteArrayRegion)(raw, array, 0, len, bytes.as_ptr().cast()) };
    // SAFETY: a local reference of this thread's, to an array of bytes.
    Ok(unsafe { JByteArray::from_raw(env, array) })
}

/// Calls `Native.raise`, which throws the exception of the kind, so that kinds are known to Java in one
/// place. What Java throws on the way there, for want of memory, stays instead, as in [`byte_array`].
pub(crate) fn throw(env: &Env<'_>, message: &str) {
    let Ok(text) = byte_array(env, message.as_bytes()) else { return };
    let (raw, functions) = (env.get_raw(), functions(env));
    // SAFETY: `env` is this thread's, nothing has been thrown, and the name ends in a zero; so below.
    let class = unsafe { (functions.FindClass)(raw, NATIVE.as_ptr()) };
    if class.is_null() {
        return;
    }
    // SAFETY: as above, of the class that was found.
    let method = unsafe { (functions.GetStaticMethodID)(raw, class, c"raise".as_ptr(), c"([B)V".as_ptr()) };
    if method.is_null() {
        return;
    }
    let arguments = [jvalue { l: text.as_raw() }];
    // SAFETY: as above; the method is static, and an array of bytes is its parameter.
    unsafe { (functions.CallStaticVoidMethodA)(raw, class, method, arguments.as_ptr()) };
}

/// What Java's native interface has had since its version 1.1.
fn functions<'e>(env: &'e Env<'_>) -> &'e JNINativeInterface__1_1 {
    // SAFETY: Java gave it, for as long as this thread is attached.
    let table = unsafe { *env.get_raw() };
    // SAFETY: as above.
    let table = unsafe { &*table };
    // SAFETY: every version has these.
    unsafe { &table.v1_1 }
}

/// Where a direct buffer lies; an error if it is no direct one.
pub(crate) fn address(env: &Env<'_>, buffer: &JByteBuffer<'_>) -> Result<jlong, Failure> {
    let address = env.get_direct_buffer_address(buffer);
    address
        .map(|address| address as jlong)
        .map_err(|_| Error::invalid("the buffer is not a direct one").into())
}

/// A method of the Java class `Native`: name, signature, and what it calls here.
type Method = (&'static JNIStr, &'static JNIStr, *mut c_void);

/// A line of [`METHODS`].
macro_rules! methods {
    ($($name:literal $signature:literal $function:path;)+) => {
        [$((jni_str!($name), jni_str!($signature), $function as *const () as *mut c_void),)+]
    };
}

/// Every method that Java calls.
fn methods() -> impl IntoIterator<Item = Method> {
    methods! {
        "version" "()I" stores::version;
        "panic" "([B)V" stores::panic;
        "address" "(Ljava/nio/ByteBuffer;)J" stores::address;
        "openEnv" "(J)J" stores::open_env;
        "envBudget" "(J)J" stores::env_budget;
        "envUsed" "(J)J" stores::env_used;
        "freeEnv" "(J)V" stores::free_env;
        "open" "([B[BJ)J" stores::open;
        "close" "(J)V" stores::close;
        "freeView" "(J)V" stores::free_view;
        "engine" "(J)[B" stores::engine;
        "keyspace" "(J[B)J" stores::keyspace;
        "keyspaces" "(J)[B" stores::keyspaces;
        "dropKeyspace" "(J[B)Z" stores::drop_keyspace;
        "snapshot" "(J)J" stores::snapshot;
        "snapshotOf" "(JJ)J" stores::snapshot_of;
        "sync" "(J)V" stores::sync;
        "checkpoint" "(J[B)V" stores::checkpoint;
        "stats" "(J)[B" stores::stats;
        "describe" "(JZ)[B" stores::describe;
        "check" "(J)[B" stores::check;
        "get" "(JJII)J" reads::get;
        "getDirect" "(JLjava/nio/ByteBuffer;IILjava/nio/ByteBuffer;II)J" reads::read_direct;
        "getLarge" "(J[B)[B" reads::read_large;
        "getMany" "(J[BI)[B" reads::get_many;
        "put" "(JJII)V" writes::put;
        "putDirect" "(JLjava/nio/ByteBuffer;IILjava/nio/ByteBuffer;II)V" writes::put_direct;
        "putLarge" "(J[B[B)V" writes::put_large;
        "delete" "(JJI)V" writes::delete;
        "deleteLarge" "(J[B)V" writes::delete_large;
        "deleteRange" "(J[B[B)V" writes::delete_range;
        "compareAndSwap" "(J[B[B[B)[B" writes::compare_and_swap;
        "write" "(J[BI[J)V" writes::write;
        "scan" "(JJIIIIII)I" scans::scan;
        "fill" "(JJIIIII)I" scans::fill;
        "freeScan" "(J)V" scans::free_scan;
    }
}

/// Called by Java when it has loaded the library: gives the methods of `Native` what they call.
#[unsafe(no_mangle)]
pub(crate) extern "system" fn JNI_OnLoad(vm: *mut jni::sys::JavaVM, _reserved: *mut c_void) -> jint {
    let is_done = panic::catch_unwind(|| {
        // SAFETY: Java calls with its own virtual machine, which ends with the process.
        let vm = unsafe { JavaVM::from_raw(vm) };
        vm.attach_current_thread(register)
    });
    // What failed, such as a method that the class does not have, Java reports as the reason.
    if matches!(is_done, Ok(Ok(()))) { JNI_VERSION_1_8 } else { JNI_ERR }
}

fn register(env: &mut Env<'_>) -> jni::errors::Result<()> {
    let native = |(name, signature, function): Method| {
        // SAFETY: the function has the parameters that the signature says, behind those of every static
        // method: `methods` has both in a line, and the tests in Java call each.
        unsafe { NativeMethod::from_raw_parts(name, signature, function) }
    };
    let methods: Vec<NativeMethod<'_>> = methods().into_iter().map(native).collect();
    let class = env.find_class(NATIVE)?;
    // SAFETY: all methods of `Native` are static (rule 4), and so are the functions.
    unsafe { env.register_native_methods(class, &methods) }
}
